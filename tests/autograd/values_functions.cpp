// SPDX-License-Identifier: Apache-2.0
// Types and values of functions of one and two elements, of reductions and scans.
#include <peal/autograd/ops/binary_math.h>
#include <peal/autograd/ops/nearness.h>

#include "value_rows.h"

#include <limits>

namespace peal::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

void add_pairs(Rows& rows, const Tensor& a, const Tensor& b) {
  const auto add = [&](const char* expression, const Tensor& y) {
    rows.add(expression, {a, b}, y);
  };
  add("torch.maximum(x[0], x[1])", maximum(a, b));
  add("torch.minimum(x[0], x[1])", minimum(a, b));
  if (a.dtype() != DType::boolean || b.dtype() != DType::boolean) {
    add("torch.remainder(x[0], x[1])", remainder(a, b));
    add("torch.fmod(x[0], x[1])", fmod(a, b));
    add("torch.floor_divide(x[0], x[1])", floor_divide(a, b));
    add("torch.div(x[0], x[1], rounding_mode='trunc')", div(a, b, Rounding::trunc));
    add("torch.pow(x[0], x[1])", pow(a, b));
  }
  add("torch.atan2(x[0], x[1])", atan2(a, b));
  if (is_floating(a.dtype()) || is_floating(b.dtype())) return;
  add("x[0] & x[1]", a & b);
  add("x[0] | x[1]", a | b);
  add("x[0] ^ x[1]", a ^ b);
  add("~x[0]", ~a);
  if (a.dtype() == DType::boolean || b.dtype() == DType::boolean) return;
  // By more than there are bits, older versions give what the processor gives.
  add("torch.bitwise_left_shift(x[0], x[1].clamp(0, 7))", bitwise_left_shift(a, clamp(b, 0, 7)));
  add("torch.bitwise_right_shift(x[0], x[1])", bitwise_right_shift(a, b));
}

void add_reductions(Rows& rows, const Tensor& x) {
  const auto add = [&](const char* expression, const Tensor& y) { rows.add(expression, {x}, y); };
  add("x[0].sum(1)", sum(x, 1));
  add("x[0].prod(0)", prod(x, 0));
  // PyTorch has u8 of u8.
  add("x[0].any().bool()", any(x));
  add("x[0].any(1, keepdim=True).bool()", any(x, 1, true));
  add("x[0].all(0).bool()", all(x, 0));
  add("x[0].amax((0, 1))", amax(x, {0, 1}));
  add("x[0].amin(-1, keepdim=True)", amin(x, -1, true));
  add("x[0].max()", max(x));
  add("x[0].cumprod(1)", cumprod(x, 1));
  add("x[0].cummax(1).values", cummax(x, 1).values);
  add("x[0].cummax(1).indices", cummax(x, 1).indices);
  add("x[0].cummin(0).indices", cummin(x, 0).indices);
  add("torch.count_nonzero(x[0])", count_nonzero(x));
  add("torch.count_nonzero(x[0], dim=0)", count_nonzero(x, 0));
  add("x[0].isnan()", isnan(x));
  add("x[0].isinf()", isinf(x));
  add("x[0].isfinite()", isfinite(x));
  if (x.dtype() != DType::boolean) {
    add("x[0].argmax()", argmax(x));
    add("x[0].argmin(1, keepdim=True)", argmin(x, 1, true));
  }
}

// At poles, beyond them, and where a result needs all of its digits.
void add_special(Rows& rows) {
  const Tensor finite =
      tensor({-30.3, -7.25, -2.5, -1., -0.7, -1e-3, 0., 1e-3, 0.5, 1., 1.5, 9.99, 10., 33.3, 1e5});
  const Tensor x = cast(finite, DType::f64), above = slice(x, 0, 7).clone();
  rows.add("torch.lgamma(x[0])", {x}, lgamma(x));
  rows.add("torch.digamma(x[0])", {x}, digamma(x));
  for (const int n : {1, 2, 3, 6}) {
    rows.add(concat("torch.polygamma(", n, ", x[0])"), {above}, polygamma(n, above));
  }
  const Tensor ends = tensor({-infinity, infinity, no_number});
  rows.add("torch.lgamma(x[0])", {ends}, lgamma(ends));
  const Tensor share = cast(
      tensor({-1., -0.999999, -0.5, -1e-30, 0., 1e-9, 0.25, 0.7, 1 - 0x1p-24, 1., 1.5, no_number}),
      DType::f64);
  rows.add("torch.erfinv(x[0])", {share}, erfinv(share));
  const Tensor whole = tensor({1, 2, 7});
  rows.add("torch.lgamma(x[0])", {whole}, lgamma(whole));
  rows.add("torch.digamma(x[0])", {whole}, digamma(whole));
  rows.add("torch.polygamma(1, x[0])", {whole}, polygamma(1, whole));
}

// So large that the noise is lost: what is left is the softmax, or the likeliest.
void add_gumbel(Rows& rows, DType dtype) {
  const Tensor logits = cast(tensor({{0.5, -1., 2.}, {1., 3., -4.}}), dtype);
  for (const int dim : {0, 1, -1}) {
    rows.add(concat("F.gumbel_softmax(x[0] * 1e12, 1e12, dim=", dim, ")"), {logits},
             gumbel_softmax(logits * 1e12, 1e12, false, dim));
    rows.add(concat("F.gumbel_softmax(x[0] * 1e12, 1e12, hard=True, dim=", dim, ")"), {logits},
             gumbel_softmax(logits * 1e12, 1e12, true, dim));
  }
}

}  // namespace

void add_functions(Rows& rows) {
  add_special(rows);
  constexpr DType types[] = {DType::f32, DType::f64, DType::i32,    DType::i64,
                             DType::u8,  DType::i8,  DType::boolean};
  const Tensor numbers = Tensor::from(std::vector<float>{0, 7, 3, 3, 100, 1}, {2, 3});
  const Tensor divisors = Tensor::from(std::vector<float>{1, 2, 3, 5, 2, 1}, {2, 3});
  for (const DType left : types) {
    add_reductions(rows, cast(numbers, left));
    for (const DType right : types) {
      // Of these PyTorch's type is i16, which peal has not.
      if ((left == DType::u8 && right == DType::i8) || (left == DType::i8 && right == DType::u8)) {
        continue;
      }
      add_pairs(rows, cast(numbers, left), cast(divisors, right));
    }
  }
  for (const DType dtype : {DType::i64, DType::i8, DType::f64, DType::f32}) {
    const Tensor low = cast(Tensor::from(std::vector<float>{-7, -1, 7, -128, 5, -3}, {6}), dtype);
    const Tensor by = cast(Tensor::from(std::vector<float>{2, -3, -2, -1, 3, -3}, {6}), dtype);
    add_pairs(rows, low, by);
    rows.add("x[0] % 3", {low}, low % 3);
    rows.add("7 % x[0]", {low}, 7 % low);
    rows.add("x[0] // 2", {low}, floor_divide(low, 2));
    rows.add("x[0] % 2.5", {low}, low % 2.5);
    rows.add("2 ** x[0].abs().clamp(max=5)", {low}, pow(2, clamp(abs(low), -infinity, 5)));
  }
  // Means of 128.25 and -128, each of which a bf16 would round.
  const Tensor volume =
      cast(tensor({128., 128., 128., 129., -128., -128., -128., -128.}), DType::bf16)
          .reshape({1, 1, 2, 2, 2});
  for (const Tensor& mean : {avg_pool3d(volume, 2), adaptive_avg_pool3d(volume, 1)}) {
    rows.add("torch.full((1, 1, 1, 1, 1), 0.125).bfloat16()", {}, mean);
  }
  const Tensor odd = Tensor::from(
      std::vector<double>{1, no_number, 5, no_number, -infinity, infinity, infinity, 0, 2, 2},
      {2, 5});
  const Tensor other = Tensor::from(std::vector<double>{1 + 1e-7, no_number, 4, 1, -infinity,
                                                        -infinity, infinity, 1e-9, no_number, 3},
                                    {2, 5});
  for (const DType dtype : {DType::f64, DType::f32}) {
    add_gumbel(rows, dtype);
    const Tensor a = cast(odd, dtype), b = cast(other, dtype);
    add_reductions(rows, a);
    rows.add("torch.isclose(x[0], x[1])", {a, b}, isclose(a, b));
    rows.add("torch.isclose(x[0], x[1], 0.5, 0.1, True)", {a, b}, isclose(a, b, 0.5, 0.1, true));
    rows.add("torch.nan_to_num(x[0])", {a}, nan_to_num(a));
    rows.add("torch.nan_to_num(x[0], 3, 4, 5)", {a}, nan_to_num(a, 3, 4, 5));
    rows.add("torch.logsumexp(x[0], 0)", {a}, logsumexp(a, 0));
    rows.add("torch.logcumsumexp(x[0], 1)", {a}, logcumsumexp(a, 1));
    for (const auto& [name, f] :
         std::initializer_list<std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&)>>{
             {"maximum", maximum},
             {"minimum", minimum},
             {"fmax", peal::fmax},
             {"fmin", peal::fmin},
             {"logaddexp", logaddexp},
             {"xlogy", xlogy},
             {"hypot", peal::hypot}}) {
      rows.add(concat("torch.", name, "(x[0], x[1])"), {a, b}, f(a, b));
    }
  }
}

}  // namespace peal::test
