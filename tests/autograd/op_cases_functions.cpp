// SPDX-License-Identifier: Apache-2.0
// Functions of one element and activations, away from their kinks.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {
namespace {

using Function = Tensor (*)(const Tensor&);

class Table {
 public:
  void add(const std::string& torch, Function op, Values values = Values::normal) {
    for (const Shape& shape : {Shape{}, Shape{17}, Shape{2, 1, 33}}) {
      rows_.push_back(
          {torch, [op](const Tensors& x, const Tensors&) { return op(x[0]); }, {{shape, values}}});
    }
  }
  std::vector<OpCase> take() { return std::move(rows_); }

 private:
  std::vector<OpCase> rows_;
};

#define ROW(name, ...) \
  table.add(           \
      "torch." #name "(x[0])", [](const Tensor& x) { return name(x); }, ##__VA_ARGS__)

}  // namespace

std::vector<OpCase> function_cases() {
  Table table;
  ROW(square);
  ROW(reciprocal, Values::nonzero);
  ROW(rsqrt, Values::positive);
  ROW(exp2);
  ROW(expm1);
  ROW(log1p, Values::positive);
  ROW(log2, Values::positive);
  ROW(log10, Values::positive);
  ROW(erf);
  ROW(erfc);
  ROW(lgamma, Values::positive);
  // PyTorch's polygamma of order 1 has but 10 digits of small numbers.
  table.add(
      "torch.digamma(x[0] + 8)", [](const Tensor& x) { return digamma(x + 8); }, Values::positive);
  table.add(
      "torch.polygamma(0, x[0] + 8)", [](const Tensor& x) { return polygamma(0, x + 8); },
      Values::positive);
  table.add(
      "torch.polygamma(1, x[0] + 8)", [](const Tensor& x) { return polygamma(1, x + 8); },
      Values::positive);
  table.add(
      "torch.polygamma(2, x[0])", [](const Tensor& x) { return polygamma(2, x); },
      Values::positive);
  table.add("torch.erfinv(x[0].tanh() * 0.8)",
            [](const Tensor& x) { return erfinv(tanh(x) * 0.8); });
  ROW(sin);
  ROW(cos);
  ROW(sinh);
  ROW(cosh);
  ROW(atan);
  ROW(asinh);
  ROW(sign, Values::distinct);
  ROW(frac, Values::distinct);
  ROW(sinc, Values::nonzero);
  ROW(deg2rad);
  ROW(rad2deg);
  table.add("torch.tan(x[0].tanh())", [](const Tensor& x) { return tan(tanh(x)); });
  table.add("torch.asin(x[0].tanh() * 0.8)", [](const Tensor& x) { return asin(tanh(x) * 0.8); });
  table.add("torch.acos(x[0].tanh() * 0.8)", [](const Tensor& x) { return acos(tanh(x) * 0.8); });
  table.add("torch.atanh(x[0].tanh() * 0.8)", [](const Tensor& x) { return atanh(tanh(x) * 0.8); });
  table.add(
      "torch.acosh(x[0] + 1)", [](const Tensor& x) { return acosh(x + 1); }, Values::positive);
  table.add("torch.logit(x[0].tanh() * 0.4 + 0.5)",
            [](const Tensor& x) { return logit(tanh(x) * 0.4 + 0.5); });
  table.add(
      "torch.logit(x[0], eps=0.25)", [](const Tensor& x) { return logit(x, 0.25); },
      Values::distinct);
  table.add(
      "torch.floor(x[0] * 4) * x[0]", [](const Tensor& x) { return floor(x * 4) * x; },
      Values::distinct);
  table.add(
      "torch.ceil(x[0] * 4) * x[0]", [](const Tensor& x) { return ceil(x * 4) * x; },
      Values::distinct);
  table.add(
      "torch.round(x[0] * 4) * x[0]", [](const Tensor& x) { return round(x * 4) * x; },
      Values::distinct);
  table.add(
      "torch.round(x[0] * 4, decimals=0) * x[0]",
      [](const Tensor& x) { return round(x * 4, 0) * x; }, Values::distinct);
  table.add(
      "torch.trunc(x[0] * 4) * x[0]", [](const Tensor& x) { return trunc(x * 4) * x; },
      Values::distinct);
  table.add("torch.pow(x[0], 2)", [](const Tensor& x) { return pow(x, 2); });
  table.add("torch.log(x[0].square() + x[0].exp())",
            [](const Tensor& x) { return log(square(x) + exp(x)); });
  return table.take();
}

std::vector<OpCase> activation_cases() {
  Table table;
  table.add("F.silu(x[0])", [](const Tensor& x) { return silu(x); });
  table.add("F.silu(x[0] * 8)", [](const Tensor& x) { return silu(x * 8); });
  table.add("F.mish(x[0])", [](const Tensor& x) { return mish(x); });
  table.add("F.mish(x[0] * 8)", [](const Tensor& x) { return mish(x * 8); });
  table.add("F.softplus(x[0])", [](const Tensor& x) { return softplus(x); });
  table.add(
      "F.softplus(x[0], 2, 1)", [](const Tensor& x) { return softplus(x, 2, 1); },
      Values::distinct);
  table.add("F.logsigmoid(x[0] * 4)", [](const Tensor& x) { return logsigmoid(x * 4); });
  table.add(
      "F.elu(x[0])", [](const Tensor& x) { return elu(x); }, Values::distinct);
  table.add(
      "F.elu(x[0], 0.5)", [](const Tensor& x) { return elu(x, 0.5); }, Values::distinct);
  table.add(
      "F.selu(x[0])", [](const Tensor& x) { return selu(x); }, Values::distinct);
  table.add(
      "F.celu(x[0], 2.0)", [](const Tensor& x) { return celu(x, 2); }, Values::distinct);
  table.add(
      "F.leaky_relu(x[0])", [](const Tensor& x) { return leaky_relu(x); }, Values::distinct);
  table.add(
      "F.leaky_relu(x[0], -0.5)", [](const Tensor& x) { return leaky_relu(x, -0.5); },
      Values::distinct);
  table.add(
      "F.hardtanh(x[0])", [](const Tensor& x) { return hardtanh(x); }, Values::distinct);
  table.add(
      "F.hardtanh(x[0], -0.25, 0.1)", [](const Tensor& x) { return hardtanh(x, -0.25, 0.1); },
      Values::distinct);
  table.add(
      "F.relu6(x[0] * 8)", [](const Tensor& x) { return relu6(x * 8); }, Values::distinct);
  table.add(
      "F.relu6(x[0] * 4 + 3) / 6", [](const Tensor& x) { return hardsigmoid(x * 4); },
      Values::distinct);
  table.add(
      "F.hardswish(x[0] * 4)", [](const Tensor& x) { return hardswish(x * 4); }, Values::distinct);
  table.add(
      "F.softsign(x[0])", [](const Tensor& x) { return softsign(x); }, Values::distinct);
  table.add("F.tanhshrink(x[0])", [](const Tensor& x) { return tanhshrink(x); });
  table.add(
      "F.hardshrink(x[0])", [](const Tensor& x) { return hardshrink(x); }, Values::distinct);
  table.add(
      "F.hardshrink(x[0], 0.1)", [](const Tensor& x) { return hardshrink(x, 0.1); },
      Values::distinct);
  table.add(
      "F.softshrink(x[0])", [](const Tensor& x) { return softshrink(x); }, Values::distinct);
  table.add(
      "F.softshrink(x[0], 0.1)", [](const Tensor& x) { return softshrink(x, 0.1); },
      Values::distinct);
  table.add(
      "F.threshold(x[0], 0.1, 20)", [](const Tensor& x) { return threshold(x, 0.1, 20); },
      Values::distinct);
  table.add(
      "F.rrelu(x[0], 0.125, 0.5)", [](const Tensor& x) { return rrelu(x, 0.125, 0.5); },
      Values::distinct);
  std::vector<OpCase> all = table.take();
  const auto add = [&](std::string torch, auto op, std::vector<Input> inputs) {
    all.push_back({std::move(torch), [op](const Tensors& x, const Tensors&) { return op(x); },
                   std::move(inputs)});
  };
  const auto learned = [](const Tensors& x) { return prelu(x[0], x[1]); };
  for (const auto& [x, weight] : std::vector<std::pair<Shape, Shape>>{
           {{5}, {1}}, {{3, 4}, {4}}, {{2, 3, 1, 5}, {3}}, {{2, 3, 4}, {1}}}) {
    add("F.prelu(x[0], x[1])", learned, {{x, Values::distinct}, {weight}});
  }
  for (const int dim : {0, 1, -1}) {
    add(concat("F.glu(x[0], ", dim, ")"), [dim](const Tensors& x) { return glu(x[0], dim); },
        {{{2, 4, 6}}});
    add(concat("F.softmin(x[0], dim=", dim, ")"),
        [dim](const Tensors& x) { return softmin(x[0], dim); }, {{{2, 4, 6}}});
  }
  return all;
}

}  // namespace peal::test
