// SPDX-License-Identifier: Apache-2.0
// Arithmetic, sums, and what BasicNet is made of.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {
namespace {

void add_arithmetic(std::vector<OpCase>& all) {
  const std::vector<std::pair<Shape, Shape>> pairs = {
      {{3, 17}, {3, 17}}, {{17}, {3, 1}}, {{}, {2, 3, 5}}, {{2, 1, 67}, {1}}};
  for (const auto& [a, b] : pairs) {
    const auto add = [&](std::string torch, auto op) {
      all.push_back({std::move(torch),
                     [op](const Tensors& x, const Tensors&) { return op(x[0], x[1]); },
                     {{a}, {b, Values::nonzero}}});
    };
    add("x[0] + x[1]", [](const Tensor& l, const Tensor& r) { return l + r; });
    add("x[0] - x[1]", [](const Tensor& l, const Tensor& r) { return l - r; });
    add("x[0] * x[1]", [](const Tensor& l, const Tensor& r) { return l * r; });
    add("x[0] / x[1]", [](const Tensor& l, const Tensor& r) { return l / r; });
  }
}

void add_one_operand(std::vector<OpCase>& all) {
  const auto add = [&](std::string torch, const Shape& shape, auto op) {
    all.push_back({std::move(torch),
                   [op](const Tensors& x, const Tensors&) { return op(x[0]); },
                   {{shape, Values::distinct}}});
  };
  add("torch.relu(x[0])", {3, 67}, [](const Tensor& x) { return relu(x); });
  add("-x[0] * 2 + 1", {3, 67}, [](const Tensor& x) { return -x * 2.0 + 1.0; });
  add("x[0].sum()", {3, 67}, [](const Tensor& x) { return sum(x); });
  add("x[0].mean()", {3, 67}, [](const Tensor& x) { return mean(x); });
  add("x[0].sum((0, 2), keepdim=True)", {3, 5, 7}, [](const Tensor& x) {
    return sum(x, {0, 2}, true);
  });
  add("x[0].mean(1)", {3, 5, 7}, [](const Tensor& x) { return mean(x, {1}); });
  for (const Shape& shape : {Shape{1}, Shape{3, 5}, Shape{33, 67}}) {
    add("torch.log_softmax(x[0], -1)", shape, [](const Tensor& x) { return log_softmax(x); });
  }
  add("F.max_pool2d(x[0], 2)", {2, 3, 5, 8}, [](const Tensor& x) { return max_pool2d(x, {2, 2}); });
  add("F.max_pool2d(x[0], (3, 2), (1, 2))", {1, 2, 6, 7}, [](const Tensor& x) {
    return max_pool2d(x, {3, 2}, {1, 2});
  });
}

void add_products(std::vector<OpCase>& all) {
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      all.push_back(
          {concat("x[0]", ta ? ".t()" : "", " @ x[1]", tb ? ".t()" : ""),
           [ta, tb](const Tensors& x, const Tensors&) { return matmul(x[0], x[1], ta, tb); },
           {{ta ? Shape{33, 5} : Shape{5, 33}}, {tb ? Shape{17, 33} : Shape{33, 17}}}});
    }
  }
  for (const Shape& shape : {Shape{7}, Shape{1, 7}, Shape{5, 7}, Shape{2, 3, 7}}) {
    all.push_back({"F.linear(x[0], x[1], x[2])",
                   [](const Tensors& x, const Tensors&) { return linear(x[0], x[1], x[2]); },
                   {{shape}, {{17, 7}}, {{17}}}});
    all.push_back({"F.linear(x[0], x[1])",
                   [](const Tensors& x, const Tensors&) { return linear(x[0], x[1]); },
                   {{shape}, {{17, 7}}}});
  }
  struct Case {
    Shape x, weight;
    Conv2dOptions o;
  };
  const std::vector<Case> cases = {
      {{2, 1, 8, 8}, {4, 1, 3, 3}, {}},
      {{1, 3, 7, 9}, {5, 3, 3, 2}, {{2, 1}, {1, 0}}},
      {{3, 17, 6, 6}, {16, 17, 3, 3}, {{1, 1}, {1, 1}}},
      {{2, 16, 5, 5}, {33, 16, 1, 1}, {}},
      {{18, 16, 6, 6}, {16, 16, 3, 3}, {{1, 1}, {1, 1}}},
  };
  for (const Case& c : cases) {
    all.push_back(
        {concat("F.conv2d(x[0], x[1], x[2], (", c.o.stride[0], ", ", c.o.stride[1], "), (",
                c.o.padding[0], ", ", c.o.padding[1], "))"),
         [o = c.o](const Tensors& x, const Tensors&) { return conv2d(x[0], x[1], x[2], o); },
         {{c.x}, {c.weight}, {{c.weight[0]}}}});
  }
}

}  // namespace

std::vector<OpCase> basic_cases() {
  std::vector<OpCase> all;
  add_arithmetic(all);
  add_one_operand(all);
  add_products(all);
  return all;
}

}  // namespace peal::test
