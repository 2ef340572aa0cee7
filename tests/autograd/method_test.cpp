// SPDX-License-Identifier: Apache-2.0
// Every line of core/methods.def: the method is the function, on a tensor and on a part of one.
#include <peal/autograd/ops/ops.h>

#include "arrays.h"

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::test;

namespace {

#define METHOD(result, name, parameters, arguments) +1
constexpr std::size_t lines = 0
#include <peal/autograd/core/methods.def>
    ;
#undef METHOD

Tensor first_of(const Tensor& x) { return x; }
Tensor first_of(const Extreme& x) {
  return cat({x.values.flatten(), cast(x.indices, DType::f32).flatten()});
}
Tensor first_of(const Parts& x) { return x[1]; }

struct Row {
  const char* call;
  Tensor expected, of_tensor, of_part;
};

}  // namespace

TEST_CASE("each method is its function") {
  const Tensor x = normal<float>({4, 6}, 1), y = normal<float>({4, 6}, 2);
  const Tensor index = Tensor::from(std::vector<std::int64_t>{2, 0}, {2});
  const Tensor places = Tensor::zeros({4, 2}, DType::i64), mask = lt(y, 0),
               z = normal<float>({6, 2}, 3);
  const Tensor thin = normal<float>({4, 1}, 4);
  const Tensor positive = abs(x) + 0.5, small = x * 0.1, flat_places = index.flatten();
  const Tensor thick = normal<float>({4, 2}, 5);
  const Tensor cube = normal<float>({2, 4, 6}, 6), cube_z = normal<float>({2, 6, 2}, 7),
               flat = normal<float>({6}, 8), column = normal<float>({4}, 9),
               threes = normal<float>({3, 3}, 10);
  const std::vector<int> one{1};
  const std::vector<std::int64_t> shape{3, 8}, sizes{4, 2};
  std::vector<Row> rows;
  // The function of x, and the methods of x and of the same as a part of another.
#define ROW(name, of, ...)                                                    \
  rows.push_back({#name, first_of(peal::name(of __VA_OPT__(, ) __VA_ARGS__)), \
                  first_of((of).name(__VA_ARGS__)), first_of((of)[Ellipsis].name(__VA_ARGS__))});
  ROW(add, x, y)
  ROW(add, x, 2)
  ROW(sub, x, y)
  ROW(sub, x, 2)
  ROW(mul, x, y)
  ROW(mul, x, 2)
  ROW(div, x, y)
  ROW(div, x, 2)
  ROW(neg, x)
  ROW(eq, x, y)
  ROW(eq, x, 0)
  ROW(ne, x, y)
  ROW(ne, x, 0)
  ROW(lt, x, y)
  ROW(lt, x, 0)
  ROW(le, x, y)
  ROW(le, x, 0)
  ROW(gt, x, y)
  ROW(gt, x, 0)
  ROW(ge, x, y)
  ROW(ge, x, 0)
  ROW(logical_and, mask, x)
  ROW(logical_or, mask, x)
  ROW(logical_xor, mask, x)
  ROW(logical_not, mask)
  const auto chosen = [&](const auto& from) { return from.where(mask, y); };
  rows.push_back({"where", where(mask, x, y), chosen(x), chosen(x[Ellipsis])});
  rows.push_back({"where", where(mask, x, 2), x.where(mask, 2), x[Ellipsis].where(mask, 2)});
  ROW(exp, x)
  ROW(log, x)
  ROW(sqrt, x)
  ROW(abs, x)
  ROW(pow, x, 2)
  ROW(clamp, x, -0.5, 0.5)
  ROW(tanh, x)
  ROW(sigmoid, x)
  ROW(relu, x)
  ROW(softmax, x, 0)
  ROW(log_softmax, x, 0)
  ROW(sum, x)
  ROW(sum, x, one)
  ROW(sum, x, one, true)
  ROW(mean, x)
  ROW(mean, x, one)
  ROW(mean, x, one, true)
  ROW(cumsum, x, 1)
  ROW(argmax, x, 1)
  ROW(argmin, x, 1)
  ROW(max, x)
  ROW(max, x, 1)
  ROW(max, x, 1, true)
  ROW(min, x)
  ROW(min, x, 1)
  ROW(min, x, 1, true)
  ROW(reshape, x, shape)
  ROW(view_as, x, reshape(y, {6, 4}))
  ROW(flatten, x)
  ROW(flatten, x, 1)
  ROW(unsqueeze, x, 1)
  ROW(squeeze, thin, 1)
  ROW(permute, x, std::vector<int>{1, 0})
  ROW(transpose, x, 0, 1)
  ROW(narrow, x, 1, 2, 3)
  ROW(select, x, 1, 2)
  ROW(split, x, 2)
  ROW(split, x, 2, 1)
  ROW(split, x, std::vector<std::int64_t>{1, 3})
  ROW(split, x, sizes, 1)
  ROW(index_select, x, 1, index)
  ROW(gather, x, 1, places)
  ROW(matmul, x, z)
  ROW(exp2, x)
  ROW(expm1, x)
  ROW(rad2deg, x)
  ROW(deg2rad, x)
  ROW(sinc, x)
  ROW(square, x)
  ROW(sin, x)
  ROW(cos, x)
  ROW(tan, x)
  ROW(sinh, x)
  ROW(cosh, x)
  ROW(asinh, x)
  ROW(atan, x)
  ROW(erf, x)
  ROW(erfc, x)
  ROW(erfinv, tanh(x))
  ROW(lgamma, x)
  ROW(digamma, x)
  ROW(floor, x)
  ROW(ceil, x)
  ROW(trunc, x)
  ROW(round, x)
  ROW(frac, x)
  ROW(sign, x)
  ROW(log1p, positive)
  ROW(log2, positive)
  ROW(log10, positive)
  ROW(rsqrt, positive)
  ROW(reciprocal, positive)
  ROW(asin, small)
  ROW(acos, small)
  ROW(atanh, small)
  ROW(acosh, positive + 1)
  ROW(logit, abs(small))
  ROW(round, x, 2)
  ROW(clamp, x, 0.25)
  ROW(clamp_min, x, 0.25)
  ROW(clamp_max, x, 0.25)
  ROW(nansum, x)
  ROW(nanmean, x)
  ROW(prod, x)
  ROW(any, x)
  ROW(all, x)
  ROW(count_nonzero, x)
  ROW(amax, x)
  ROW(amin, x)
  ROW(argmax, x)
  ROW(argmin, x)
  ROW(any, x, 1)
  ROW(any, x, 1, true)
  ROW(all, x, 1)
  ROW(all, x, 1, true)
  ROW(amax, x, 1)
  ROW(amax, x, 1, true)
  ROW(amin, x, 1)
  ROW(amin, x, 1, true)
  ROW(logsumexp, x, 1)
  ROW(logsumexp, x, 1, true)
  ROW(count_nonzero, x, 1)
  ROW(prod, x, 1)
  ROW(prod, x, 1, true)
  ROW(argmax, x, 1, true)
  ROW(argmin, x, 1, true)
  ROW(cumprod, x, 1)
  ROW(logcumsumexp, x, 1)
  ROW(cummax, x, 1)
  ROW(cummin, x, 1)
  ROW(diff, x)
  ROW(diff, x, 1, 0)
  ROW(var, x)
  ROW(var, x, 1)
  ROW(var, x, 1, 0)
  ROW(var, x, 1, 0, true)
  ROW(std, x)
  ROW(std, x, 1)
  ROW(std, x, 1, 0)
  ROW(std, x, 1, 0, true)
  ROW(norm, x)
  ROW(norm, x, 1.0)
  ROW(norm, x, 1.0, 1)
  ROW(norm, x, 1.0, 1, true)
  ROW(flatten, x, 0, 1)
  ROW(unflatten, x, 1, std::vector<std::int64_t>{2, 3})
  ROW(squeeze, thin)
  ROW(squeeze, thin, one)
  ROW(swapaxes, x, 0, 1)
  ROW(t, x)
  ROW(movedim, x, 0, 1)
  ROW(flip, x, 0)
  ROW(flip, x, one)
  ROW(rot90, x)
  ROW(rot90, x, -1)
  ROW(rot90, cube, 1, std::vector<int>{2, 0})
  ROW(fliplr, x)
  ROW(flipud, x)
  ROW(roll, x, 1)
  ROW(roll, x, 1, 1)
  ROW(expand, thin, std::vector<std::int64_t>{-1, 3})
  ROW(expand_as, thin, x)
  ROW(broadcast_to, thin, std::vector<std::int64_t>{4, 3})
  ROW(repeat, x, std::vector<std::int64_t>{2, 1})
  ROW(tile, x, std::vector<std::int64_t>{2})
  ROW(repeat_interleave, x, 2)
  ROW(repeat_interleave, x, 2, 1)
  ROW(chunk, x, 2)
  ROW(chunk, x, 2, 1)
  ROW(unbind, x)
  ROW(unbind, x, 1)
  ROW(tril, x)
  ROW(tril, x, 1)
  ROW(triu, x)
  ROW(triu, x, 1)
  ROW(diagonal, x)
  ROW(diagonal, x, 1)
  ROW(diag, x)
  ROW(diag_embed, x)
  ROW(sort, x)
  ROW(sort, x, 0)
  ROW(sort, x, 0, true)
  ROW(argsort, x)
  ROW(argsort, x, 0)
  ROW(argsort, x, 0, true)
  ROW(topk, x, 2)
  ROW(topk, x, 2, 0)
  ROW(topk, x, 2, 0, false)
  ROW(kthvalue, x, 2)
  ROW(kthvalue, x, 2, 0)
  ROW(median, x)
  ROW(median, x, 0)
  ROW(mode, x)
  ROW(mode, x, 0)
  ROW(quantile, x, 0.3)
  ROW(quantile, x, 0.3, 1)
  ROW(bincount, flat_places)
  ROW(histc, x, 5, -1, 1)
  ROW(nonzero, mask)
  ROW(masked_select, x, mask)
  ROW(masked_fill, x, mask, 2)
  ROW(masked_fill, x, mask, sum(y))
  ROW(masked_scatter, x, mask, y)
  ROW(scatter, x, 1, places, y)
  ROW(scatter, x, 1, places, 2)
  ROW(scatter_add, x, 1, places, y)
  ROW(index_add, x, 1, index, thick)
  ROW(index_copy, x, 1, index, thick)
  ROW(index_fill, x, 1, index, 2)
  ROW(take, x, index)
  ROW(take_along_dim, x, places, 1)
  ROW(maximum, x, y)
  ROW(minimum, x, y)
  ROW(clamp_min, x, y)
  ROW(clamp_max, x, y)
  ROW(fmax, x, y)
  ROW(fmin, x, y)
  ROW(atan2, x, y)
  ROW(hypot, x, y)
  ROW(pow, positive, y)
  ROW(logaddexp, x, y)
  ROW(xlogy, x, positive)
  ROW(floor_divide, x, y)
  ROW(floor_divide, x, 2)
  ROW(remainder, x, y)
  ROW(remainder, x, 2)
  ROW(fmod, x, y)
  ROW(fmod, x, 2)
  ROW(bitwise_and, places, places)
  ROW(bitwise_and, places, 1)
  ROW(bitwise_or, places, places)
  ROW(bitwise_or, places, 1)
  ROW(bitwise_xor, places, places)
  ROW(bitwise_xor, places, 1)
  ROW(bitwise_not, places)
  ROW(lerp, x, y, 0.3)
  ROW(lerp, x, y, positive)
  ROW(addcmul, x, y, y)
  ROW(addcmul, x, y, y, 2)
  ROW(addcdiv, x, y, positive)
  ROW(addcdiv, x, y, positive, 2)
  ROW(isnan, x)
  ROW(isinf, x)
  ROW(isfinite, x)
  ROW(nan_to_num, x)
  ROW(mm, x, z)
  ROW(bmm, cube, cube_z)
  ROW(mv, x, flat)
  ROW(dot, flat, flat)
  ROW(outer, flat, column)
  ROW(kron, x, z)
  ROW(cross, threes, threes + 1)
  ROW(cross, threes, flip(threes, 0), 1)
  ROW(addmm, thick, x, z)
  ROW(addmm, thick, x, z, 2, 3)
  ROW(addmv, column, x, flat)
  ROW(addmv, column, x, flat, 2, 3)
  ROW(baddbmm, thick, cube, cube_z)
  ROW(baddbmm, thick, cube, cube_z, 2, 3)
  ROW(trace, x)
  ROW(unfold, x, 1, 2, 1)
#undef ROW
  CHECK(rows.size() == lines);
  for (const Row& row : rows) {
    CAPTURE(row.call);
    for (const Tensor& got : {row.of_tensor, row.of_part}) {
      CHECK(got.shape() == row.expected.shape());
      CHECK(got.dtype() == row.expected.dtype());
      CHECK(distance(got, row.expected) == 0);
    }
  }
}

TEST_CASE("arguments in braces, and methods that are no functions") {
  const Tensor x = normal<float>({4, 6}, 1);
  CHECK(x.reshape({2, -1}).shape() == Shape{2, 12});
  CHECK(x.view({2, 12}).shape() == Shape{2, 12});
  CHECK(x.sum({0, 1}).dim() == 0);
  CHECK(x.permute({1, 0}).shape() == Shape{6, 4});
  CHECK(x.split({1, 3})[1].shape() == Shape{3, 6});
  CHECK(x.to(DType::f64).dtype() == DType::f64);
  CHECK(x.to(Device{}).same_as(x));
  CHECK(x.contiguous().same_as(x));
  CHECK(x.clone().requires_grad_().requires_grad());
}
