// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {

std::vector<OpCase> pointwise_cases() {
  std::vector<OpCase> all;
  for (const Shape& s : {Shape{}, Shape{1}, Shape{17}, Shape{3, 1, 67}}) {
    const auto add = [&](std::string torch, auto op, Values values = Values::normal) {
      all.push_back({std::move(torch),
                     [op](const Tensors& x, const Tensors&) { return op(x[0]); },
                     {{s, values}}});
    };
    add("torch.exp(x[0])", [](const Tensor& x) { return exp(x); });
    add(
        "torch.log(x[0])", [](const Tensor& x) { return log(x); }, Values::positive);
    add(
        "torch.sqrt(x[0])", [](const Tensor& x) { return sqrt(x); }, Values::positive);
    add(
        "torch.abs(x[0])", [](const Tensor& x) { return abs(x); }, Values::distinct);
    add("torch.tanh(x[0])", [](const Tensor& x) { return tanh(x); });
    add("torch.tanh(x[0] * 8)", [](const Tensor& x) { return tanh(x * 8.0); });
    add("torch.sigmoid(x[0])", [](const Tensor& x) { return sigmoid(x); });
    add("F.gelu(x[0])", [](const Tensor& x) { return gelu(x); });
    add("F.gelu(x[0] * 4)", [](const Tensor& x) { return gelu(x * 4.0); });
    add("F.gelu(x[0], approximate='tanh')",
        [](const Tensor& x) { return gelu(x, GeluApproximation::tanh); });
    for (const double e : {2.0, 3.0, -1.0, 0.5, 0.0}) {
      add(
          concat("torch.pow(x[0], ", e, ")"), [e](const Tensor& x) { return pow(x, e); },
          Values::positive);
    }
    add(
        "torch.pow(x[0], 3.0)", [](const Tensor& x) { return pow(x, 3); }, Values::nonzero);
    add(
        "torch.clamp(x[0], -0.125, 0.25)", [](const Tensor& x) { return clamp(x, -0.125, 0.25); },
        Values::distinct);
    add(
        "x[0].clamp_min(0.125)", [](const Tensor& x) { return clamp_min(x, 0.125); },
        Values::distinct);
    add(
        "x[0].clamp_max(-0.125)", [](const Tensor& x) { return clamp_max(x, -0.125); },
        Values::distinct);
    add(
        "torch.clamp(x[0], min=0.125)", [](const Tensor& x) { return clamp(x, 0.125); },
        Values::distinct);
    add(
        "torch.where(x[0] > 0.25, x[0] * 2, -x[0])",
        [](const Tensor& x) { return where(gt(x, 0.25), x * 2.0, -x); }, Values::distinct);
    add("x[0] + x[0].to(torch.float64).to(x[0].dtype)",
        [](const Tensor& x) { return x + cast(cast(x, DType::f64), x.dtype()); });
  }
  const Tensor condition = lt(normal<float>({3, 1}, 7), 0.0);
  const std::vector<std::pair<Shape, Shape>> pairs = {
      {{3, 5}, {3, 5}}, {{5}, {3, 1}}, {{}, {2, 3, 5}}, {{2, 1, 5}, {}}};
  for (const auto& [a, b] : pairs) {
    all.push_back({"torch.where(k[0], x[0], x[1])",
                   [](const Tensors& x, const Tensors& k) { return where(k[0], x[0], x[1]); },
                   {{a}, {b}},
                   {condition}});
    const auto compared = [&](std::string torch, auto op) {
      all.push_back({"torch.where(" + torch + ", x[0], x[1] * 3)",
                     [op](const Tensors& x, const Tensors&) {
                       return where(op(x[0], x[1]), x[0], x[1] * 3.0);
                     },
                     {{a}, {b}}});
    };
    compared("x[0] == x[1]", [](const Tensor& l, const Tensor& r) { return eq(l, r); });
    compared("x[0] != x[1]", [](const Tensor& l, const Tensor& r) { return ne(l, r); });
    compared("x[0] < x[1]", [](const Tensor& l, const Tensor& r) { return lt(l, r); });
    compared("x[0] <= x[1]", [](const Tensor& l, const Tensor& r) { return le(l, r); });
    compared("x[0] > x[1]", [](const Tensor& l, const Tensor& r) { return gt(l, r); });
    compared("x[0] >= x[1]", [](const Tensor& l, const Tensor& r) { return ge(l, r); });
  }
  return all;
}

}  // namespace peal::test
