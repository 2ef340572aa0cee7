// SPDX-License-Identifier: Apache-2.0
// Every line of core/in_place.def: the form in place is the function, whether or not it is
// recorded.
#include <peal/autograd/ops/ops.h>
#include <peal/tests/errors.h>

#include "arrays.h"

#include <doctest/doctest.h>

#include <functional>

using namespace peal;
using namespace peal::test;
using testing::error_of;

namespace {

#define IN_PLACE(name, parameters, arguments) +1
constexpr std::size_t lines = 0
#include <peal/autograd/core/in_place.def>
    ;
#undef IN_PLACE

struct Row {
  const char* call;
  Tensor of;
  std::function<Tensor(const Tensor&)> function, in_place, method, of_part;
};

std::vector<Row> all_rows() {
  const Tensor x = normal<double>({3, 4}, 1), y = normal<double>({3, 4}, 2);
  const Tensor positive = abs(y) + 0.5, small = tanh(x) * 0.9, mask = y < 0;
  const Tensor low = x - 0.25, high = y + 0.5;
  const Tensor whole = randint(0, 9, {3, 4}), other = randint(0, 9, {3, 4});
  std::vector<Row> rows;
#define ROW(name, of, ...)                                                                        \
  rows.push_back({#name, of, [=](const Tensor& t) { return name(t __VA_OPT__(, ) __VA_ARGS__); }, \
                  [=](const Tensor& t) { return name##_(t __VA_OPT__(, ) __VA_ARGS__); },         \
                  [=](const Tensor& t) { return t.name##_(__VA_ARGS__); },                        \
                  [=](const Tensor& t) {                                                          \
                    t[Ellipsis].name##_(__VA_ARGS__);                                             \
                    return t;                                                                     \
                  }});
  ROW(abs, x)
  ROW(exp, x)
  ROW(exp2, x)
  ROW(expm1, x)
  ROW(log, positive)
  ROW(log1p, positive)
  ROW(log2, positive)
  ROW(log10, positive)
  ROW(sqrt, positive)
  ROW(rsqrt, positive)
  ROW(reciprocal, x)
  ROW(square, x)
  ROW(pow, x, 2)
  ROW(sin, x)
  ROW(cos, x)
  ROW(tan, x)
  ROW(asin, small)
  ROW(acos, small)
  ROW(atan, x)
  ROW(sinh, x)
  ROW(cosh, x)
  ROW(asinh, x)
  ROW(acosh, positive + 1)
  ROW(atanh, small)
  ROW(sinc, x)
  ROW(deg2rad, x)
  ROW(rad2deg, x)
  ROW(erf, x)
  ROW(erfc, x)
  ROW(erfinv, small)
  ROW(lgamma, positive)
  ROW(digamma, positive)
  ROW(logit, sigmoid(x))
  ROW(floor, x)
  ROW(ceil, x)
  ROW(trunc, x)
  ROW(round, x)
  ROW(round, x, 1)
  ROW(frac, x)
  ROW(sign, x)
  ROW(clamp, x, -0.5)
  ROW(clamp, x, -0.5, 0.5)
  ROW(relu, x)
  ROW(relu6, x)
  ROW(tanh, x)
  ROW(sigmoid, x)
  ROW(silu, x)
  ROW(mish, x)
  ROW(selu, x)
  ROW(celu, x, 0.5)
  ROW(elu, x, 0.5)
  ROW(leaky_relu, x, 0.25)
  ROW(threshold, x, 0, -1)
  ROW(hardtanh, x, -0.5, 0.5)
  ROW(hardsigmoid, x)
  ROW(hardswish, x)
  ROW(neg, x)
  ROW(logical_and, mask, mask)
  ROW(logical_or, mask, mask)
  ROW(logical_xor, mask, mask)
  ROW(logical_not, mask)
  ROW(clamp, x, low, high)
  ROW(pow, positive, y)
  ROW(floor_divide, x, positive)
  ROW(floor_divide, x, 2)
  ROW(remainder, x, positive)
  ROW(remainder, x, 2)
  ROW(fmod, x, positive)
  ROW(fmod, x, 2)
  ROW(atan2, x, positive)
  ROW(hypot, x, positive)
  ROW(xlogy, x, positive)
  ROW(bitwise_and, whole, other)
  ROW(bitwise_and, whole, 2)
  ROW(bitwise_or, whole, other)
  ROW(bitwise_or, whole, 2)
  ROW(bitwise_xor, whole, other)
  ROW(bitwise_xor, whole, 2)
  ROW(bitwise_not, whole)
  ROW(lerp, x, y, 0.25)
  ROW(lerp, x, y, positive)
  ROW(addcmul, x, x, y)
  ROW(addcmul, x, x, y, 3)
  ROW(addcdiv, x, x, positive)
  ROW(addcdiv, x, x, positive, 3)
  ROW(nan_to_num, x)
  ROW(cumsum, x, 1)
  ROW(cumprod, x, 1)
  ROW(tril, x)
  ROW(tril, x, 1)
  ROW(triu, x)
  ROW(triu, x, 1)
#undef ROW
  return rows;
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("in place, x becomes what the function gives, for all who share its elements") {
  const std::vector<Row> rows = all_rows();
  CHECK(rows.size() == lines);
  for (const Row& row : rows) {
    CAPTURE(row.call);
    for (const auto& in_place : {row.in_place, row.method, row.of_part}) {
      const Tensor to = row.of.clone(), shares = to.detach();
      const Tensor got = in_place(to);
      CHECK(got.same_as(to));
      CHECK(to.dtype() == row.of.dtype());
      CHECK(distance(shares, row.function(row.of)) == 0);
    }
  }
}

TEST_CASE("recorded in place: the function's gradients, of what x was before") {
  for (const Row& row : all_rows()) {
    if (!is_floating(row.of.dtype())) continue;
    CAPTURE(row.call);
    const auto gradient = [&](const auto& f) {
      const Tensor w = row.of.detach().clone().set_requires_grad();
      const Tensor x = w * 1, before = x * x;
      const Tensor y = f(x);
      (sum(y * y) + sum(before)).backward();
      return w.grad();
    };
    CHECK(distance(gradient(row.in_place), gradient(row.function)) == 0);
  }
}

TEST_CASE("of a temporary, the result has the values") {
  const Tensor x = normal<float>({2, 3}, 1);
  const Tensor y = relu_(x * 2);
  CHECK(equal(y, relu(x * 2)));
  const Tensor whole = x.clone();
  const Tensor part = clamp_(whole.rows(0, 1), 0, 0);  // shares the elements of whole
  CHECK(equal(whole.rows(0, 1), zeros({1, 3})));
  CHECK(equal(whole.rows(1, 2), x.rows(1, 2)));
  CHECK(part.storage() == whole.storage());
}

TEST_CASE("operators by name, and what does not fit") {
  const Tensor x = ones({2});
  const Tensor n = Tensor::zeros({2}, DType::i64), w = ones({2}).set_requires_grad();
  div_(mul_(sub_(sub_(x, 4), ones({2})), full({2}, 3.)), 2);
  CHECK(doubles(x) == std::vector<double>{-6, -6});
  CHECK(has(error_of([&] { exp_(n); }), "exp_: the result is f32, and is written into i64"));
  CHECK(has(error_of([&] { lerp_(x, ones({3, 2}), .5); }), "lerp_: the result has shape [3, 2]"));
  CHECK(has(error_of([&] { clamp_(w, 0, 1); }),
            "clamp_: a leaf of shape [2] that requires a gradient would be written in place"));
  const NoGrad guard;
  clamp_(w, 0, .5);
  CHECK(doubles(w) == std::vector<double>{.5, .5});
}

TEST_CASE("what is added may overlap what it is added to") {
  const Tensor x = arange(50, DType::f64), before = x.clone();
  add_(x.rows(1, 50), x.rows(0, 49), 2);
  CHECK(equal(x.rows(1, 50), before.rows(1, 50) + before.rows(0, 49) * 2));
}
