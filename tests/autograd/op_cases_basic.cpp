// SPDX-License-Identifier: Apache-2.0
// Arithmetic, sums, products of two matrices, and shapes that share storage.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {
namespace {

void add_arithmetic(std::vector<OpCase>& all) {
  const std::vector<std::pair<Shape, Shape>> pairs = {
      {{17}, {17}},        {{3, 5}, {3, 5}}, {{}, {}},         {{}, {2, 3}},
      {{2, 3}, {}},        {{3, 5}, {5}},    {{5}, {3, 5}},    {{3, 1}, {5}},
      {{2, 1, 5}, {3, 1}}, {{1}, {4, 1, 3}}, {{67, 3}, {1, 3}}};
  for (const auto& [a, b] : pairs) {
    const auto add = [&](std::string torch, auto op, Values values = Values::normal) {
      all.push_back({std::move(torch),
                     [op](const Tensors& x, const Tensors&) { return op(x[0], x[1]); },
                     {{a}, {b, values}}});
    };
    add("x[0] + x[1]", [](const Tensor& l, const Tensor& r) { return l + r; });
    add("x[0] - x[1]", [](const Tensor& l, const Tensor& r) { return l - r; });
    add("x[0] * x[1]", [](const Tensor& l, const Tensor& r) { return l * r; });
    add(
        "x[0] / x[1]", [](const Tensor& l, const Tensor& r) { return l / r; }, Values::positive);
  }
  for (const Shape& shape : {Shape{}, Shape{17}, Shape{3, 67}}) {
    const auto add = [&](std::string torch, auto op, Values values = Values::normal) {
      all.push_back({std::move(torch),
                     [op](const Tensors& x, const Tensors&) { return op(x[0]); },
                     {{shape, values}}});
    };
    add("-x[0]", [](const Tensor& x) { return -x; });
    add("2.5 - x[0] * 3", [](const Tensor& x) { return 2.5 - x * 3.0; });
    add("(0.5 + x[0]) / 7", [](const Tensor& x) { return (0.5 + x) / 7.0; });
    add(
        "torch.relu(x[0])", [](const Tensor& x) { return relu(x); }, Values::distinct);
    add(
        "torch.relu(x[0] * 2)", [](const Tensor& x) { return relu(x * 2.0); }, Values::distinct);
    all.push_back({"x[0].detach() * x[0]",
                   [](const Tensors& x, const Tensors&) { return x[0].detach() * x[0]; },
                   {{shape}},
                   {},
                   false});
    add("F.dropout(x[0], 0.5, training=False)",
        [](const Tensor& x) { return dropout(x, 0.5, false) * 1.0; });
  }
}

void add_sums(std::vector<OpCase>& all) {
  struct Case {
    Shape shape;
    std::vector<int> dims;
  };
  for (const Case& c : {Case{{17}, {0}}, Case{{3, 5}, {0}}, Case{{3, 5}, {-1}},
                        Case{{2, 3, 5}, {1}}, Case{{2, 3, 5}, {0, 2}}, Case{{2, 3, 5}, {1, 2}},
                        Case{{2, 3, 4, 5}, {0, -2}}, Case{{65, 33}, {0}}}) {
    std::string dims;
    for (const int dim : c.dims) dims += concat(dim, ",");
    for (const bool keep : {false, true}) {
      const std::string rest = concat("(x[0], (", dims, "), ", keep ? "True" : "False", ")");
      all.push_back(
          {"torch.sum" + rest,
           [d = c.dims, keep](const Tensors& x, const Tensors&) { return sum(x[0], d, keep); },
           {{c.shape}}});
      all.push_back(
          {"torch.mean" + rest,
           [d = c.dims, keep](const Tensors& x, const Tensors&) { return mean(x[0], d, keep); },
           {{c.shape}}});
    }
  }
  for (const Shape& shape : {Shape{}, Shape{17}, Shape{3, 5, 7}}) {
    all.push_back(
        {"x[0].sum()", [](const Tensors& x, const Tensors&) { return sum(x[0]); }, {{shape}}});
    all.push_back(
        {"x[0].mean()", [](const Tensors& x, const Tensors&) { return mean(x[0]); }, {{shape}}});
  }
}

void add_matrices(std::vector<OpCase>& all) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const auto& [m, k, n] : {std::array{1, 1, 1}, {3, 17, 5}, {33, 2, 7}}) {
        Shape a{m, k}, b{k, n};
        if (ta) std::swap(a[0], a[1]);
        if (tb) std::swap(b[0], b[1]);
        all.push_back(
            {concat("torch.matmul(x[0]", ta ? ".t()" : "", ", x[1]", tb ? ".t()" : "", ")"),
             [ta, tb](const Tensors& x, const Tensors&) { return matmul(x[0], x[1], ta, tb); },
             {{a}, {b}}});
      }
    }
  }
  for (const Shape& shape : {Shape{5}, Shape{3, 5}, Shape{2, 3, 5}, Shape{33, 5}}) {
    all.push_back({"F.linear(x[0], x[1], x[2])",
                   [](const Tensors& x, const Tensors&) { return linear(x[0], x[1], x[2]); },
                   {{shape}, {{7, 5}}, {{7}}}});
    all.push_back({"F.linear(x[0], x[1])",
                   [](const Tensors& x, const Tensors&) { return linear(x[0], x[1]); },
                   {{shape}, {{7, 5}}}});
    // Widths that CUDA's products do gelu for, and others.
    for (const std::int64_t hidden : {7, 24}) {
      for (const auto form : {GeluApproximation::none, GeluApproximation::tanh}) {
        const std::string gelu =
            form == GeluApproximation::tanh ? "F.gelu(h, approximate='tanh')" : "F.gelu(h)";
        all.push_back(
            {concat("(lambda h: F.linear(", gelu, ", x[3], x[4]))(F.linear(x[0], x[1], x[2]))"),
             [form](const Tensors& x, const Tensors&) {
               return feed_forward(x[0], x[1], x[2], x[3], x[4], form);
             },
             {{shape}, {{hidden, 5}}, {{hidden}}, {{3, hidden}}, {{3}}}});
        all.push_back({concat("(lambda h: F.linear(", gelu, ", x[2]))(F.linear(x[0], x[1]))"),
                       [form](const Tensors& x, const Tensors&) {
                         return feed_forward(x[0], x[1], {}, x[2], {}, form);
                       },
                       {{shape}, {{hidden, 5}}, {{3, hidden}}}});
      }
    }
  }
}

void add_views(std::vector<OpCase>& all) {
  const auto add = [&](std::string torch, auto op) {
    all.push_back({std::move(torch),
                   [op](const Tensors& x, const Tensors&) { return op(x[0]) * 2.0; },
                   {{{2, 3, 4}}}});
  };
  add("x[0].reshape(4, 6) * 2", [](const Tensor& x) { return reshape(x, {4, 6}); });
  add("x[0].reshape(-1, 2) * 2", [](const Tensor& x) { return reshape(x, {-1, 2}); });
  add("x[0].flatten() * 2", [](const Tensor& x) { return flatten(x); });
  add("x[0].flatten(1) * 2", [](const Tensor& x) { return flatten(x, 1); });
  add("x[0].unsqueeze(1) * 2", [](const Tensor& x) { return unsqueeze(x, 1); });
}

}  // namespace

std::vector<OpCase> basic_cases() {
  std::vector<OpCase> all;
  add_arithmetic(all);
  add_sums(all);
  add_matrices(all);
  add_views(all);
  return all;
}

}  // namespace peal::test
