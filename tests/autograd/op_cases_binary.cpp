// SPDX-License-Identifier: Apache-2.0
// Functions of two elements.
#include <peal/autograd/ops/binary_math.h>
#include <peal/autograd/ops/nearness.h>
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

#include <limits>

namespace peal::test {
namespace {

using Function = std::function<Tensor(const Tensor&, const Tensor&)>;

}  // namespace

std::vector<OpCase> binary_cases() {
  std::vector<OpCase> all;
  const std::vector<std::pair<Shape, Shape>> pairs = {
      {{3, 5}, {3, 5}}, {{5}, {3, 1}}, {{}, {2, 3, 5}}, {{2, 1, 5}, {}}};
  const auto add = [&](const std::string& torch, const Function& op, Values left = Values::normal,
                       Values right = Values::normal) {
    for (const auto& [a, b] : pairs) {
      all.push_back({torch,
                     [op](const Tensors& x, const Tensors&) { return op(x[0], x[1]); },
                     {{a, left}, {b, right}}});
    }
  };
#define ROW(name, ...)               \
  add(                               \
      "torch." #name "(x[0], x[1])", \
      [](const Tensor& a, const Tensor& b) { return peal::name(a, b); }, ##__VA_ARGS__)
  ROW(maximum);
  ROW(minimum);
  ROW(fmax);
  ROW(fmin);
  ROW(atan2, Values::nonzero, Values::nonzero);
  ROW(hypot, Values::nonzero, Values::nonzero);
  ROW(logaddexp);
  ROW(xlogy, Values::nonzero, Values::positive);
  ROW(pow, Values::positive);
#undef ROW
  // Quotients of distinct numbers and 0.7 are away from the steps.
  add(
      "torch.remainder(x[0] * 3, x[1] * 0 + 0.7)",
      [](const Tensor& a, const Tensor& b) { return remainder(a * 3, b * 0 + 0.7); },
      Values::distinct);
  add(
      "torch.remainder(x[0] * 0 + 9.25, x[1])",
      [](const Tensor& a, const Tensor& b) { return remainder(a * 0 + 9.25, b); }, Values::normal,
      Values::nonzero);
  add(
      "torch.fmod(x[0] * 0 - 9.25, x[1])",
      [](const Tensor& a, const Tensor& b) { return fmod(a * 0 - 9.25, b); }, Values::normal,
      Values::nonzero);
  add(
      "torch.fmod(x[0] * 3, 0.7) + x[1]",
      [](const Tensor& a, const Tensor& b) { return fmod(a * 3, 0.7) + b; }, Values::distinct);
  add("torch.pow(2.5, x[0]) * x[1]",
      [](const Tensor& a, const Tensor& b) { return pow(2.5, a) * b; });
  add("torch.lerp(x[0], x[1], 0.3)",
      [](const Tensor& a, const Tensor& b) { return lerp(a, b, 0.3); });
  // With gradients to all three.
  for (const Shape& third : {Shape{5}, Shape{3, 1}}) {
    const auto three = [&](const std::string& torch, auto op) {
      all.push_back({torch,
                     [op](const Tensors& x, const Tensors&) { return op(x[0], x[1], x[2]); },
                     {{{3, 5}}, {{3, 1}, Values::positive}, {third, Values::nonzero}}});
    };
    three("torch.addcmul(x[0], x[1], x[2], value=0.5)",
          [](const Tensor& x, const Tensor& a, const Tensor& b) { return addcmul(x, a, b, 0.5); });
    three("torch.addcdiv(x[0], x[1], x[2], value=-2)",
          [](const Tensor& x, const Tensor& a, const Tensor& b) { return addcdiv(x, a, b, -2); });
    three("torch.lerp(x[0], x[1].expand(3, 5), x[2].expand(3, 5))",
          [](const Tensor& x, const Tensor& a, const Tensor& b) { return lerp(x, a, b); });
    three("torch.clamp(x[0] * 3, -x[1], x[1] + x[2] * x[2])",
          [](const Tensor& x, const Tensor& a, const Tensor& b) {
            return clamp(x * 3, -a, a + b * b);
          });
  }
  all.push_back({"torch.nan_to_num(torch.where(x[0] > 0.25, torch.inf, x[0]), posinf=3.0)",
                 [](const Tensors& x, const Tensors&) {
                   constexpr double infinity = std::numeric_limits<double>::infinity();
                   return nan_to_num(where(x[0] > 0.25, infinity, x[0]), 0, 3);
                 },
                 {{{3, 7}, Values::distinct}}});
  return all;
}

}  // namespace peal::test
