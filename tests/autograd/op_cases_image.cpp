// SPDX-License-Identifier: Apache-2.0
// Convolutions, windows, extremes and losses.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {
namespace {

void add_convolutions(std::vector<OpCase>& all) {
  struct Case {
    Shape x, weight;
    Conv2dOptions o;
  };
  const std::vector<Case> cases = {
      {{1, 1, 3, 3}, {1, 1, 3, 3}, {}},
      {{2, 3, 5, 7}, {2, 3, 3, 2}, {}},
      {{2, 1, 6, 5}, {3, 1, 3, 3}, {{2, 2}, {1, 1}}},
      {{3, 17, 6, 6}, {16, 17, 3, 3}, {{1, 1}, {1, 1}}},
      {{2, 16, 5, 5}, {33, 16, 1, 1}, {}},
      {{18, 16, 6, 6}, {16, 16, 3, 3}, {{1, 1}, {1, 1}}},
      {{2, 2, 4, 4}, {3, 2, 1, 1}, {{2, 1}, {0, 0}}},
      {{2, 4, 5, 7}, {6, 2, 3, 2}, {.groups = 2}},
      {{1, 3, 6, 5}, {3, 1, 3, 3}, {.padding = {1, 1}, .groups = 3}},
      {{2, 3, 5, 5}, {6, 1, 3, 3}, {.stride = {2, 1}, .padding = {1, 0}, .groups = 3}},
      {{2, 2, 7, 8}, {3, 2, 3, 3}, {.dilation = {2, 2}}},
      {{1, 4, 9, 7}, {4, 2, 2, 3}, {{2, 1}, {1, 2}, {3, 2}, 2}},
  };
  for (const Case& c : cases) {
    const std::string rest = concat("(", c.o.stride[0], ", ", c.o.stride[1], "), (", c.o.padding[0],
                                    ", ", c.o.padding[1], "), (", c.o.dilation[0], ", ",
                                    c.o.dilation[1], "), ", c.o.groups, ")");
    all.push_back(
        {"F.conv2d(x[0], x[1], x[2], " + rest,
         [o = c.o](const Tensors& x, const Tensors&) { return conv2d(x[0], x[1], x[2], o); },
         {{c.x}, {c.weight}, {{c.weight[0]}}}});
    all.push_back(
        {"F.conv2d(x[0], x[1], None, " + rest,
         [o = c.o](const Tensors& x, const Tensors&) { return conv2d(x[0], x[1], {}, o); },
         {{c.x}, {c.weight}}});
  }
}

void add_sequences(std::vector<OpCase>& all) {
  struct Case {
    Shape x, weight;
    Conv1dOptions o;
  };
  const std::vector<Case> cases = {
      {{1, 1, 3}, {1, 1, 3}, {}},
      {{2, 3, 17}, {5, 3, 3}, {}},
      {{2, 3, 9}, {4, 3, 4}, {.stride = 2, .padding = 3}},
      {{3, 4, 11}, {6, 2, 3}, {.padding = 1, .groups = 2}},
      {{2, 3, 13}, {3, 1, 3}, {.stride = 2, .padding = 2, .dilation = 3, .groups = 3}},
      {{2, 5, 6}, {7, 5, 1}, {.stride = 3}},
  };
  for (const Case& c : cases) {
    const std::string rest =
        concat(c.o.stride, ", ", c.o.padding.length, ", ", c.o.dilation, ", ", c.o.groups, ")");
    all.push_back(
        {"F.conv1d(x[0], x[1], x[2], " + rest,
         [o = c.o](const Tensors& x, const Tensors&) { return conv1d(x[0], x[1], x[2], o); },
         {{c.x}, {c.weight}, {{c.weight[0]}}}});
    all.push_back(
        {"F.conv1d(x[0], x[1], None, " + rest,
         [o = c.o](const Tensors& x, const Tensors&) { return conv1d(x[0], x[1], {}, o); },
         {{c.x}, {c.weight}}});
  }
}

void add_maxima(std::vector<OpCase>& all) {
  struct Case {
    Shape x;
    Pair kernel;
    MaxPool2dOptions o;
  };
  const std::vector<Case> cases = {
      {{2, 3, 6, 8}, {2, 2}, {}},
      {{1, 2, 5, 7}, {2, 2}, {}},
      {{1, 2, 5, 7}, {3, 2}, {.stride = {1, 1}}},
      {{1, 1, 7, 5}, {2, 1}, {.stride = {3, 2}}},
      {{2, 3, 7, 9}, {3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
      {{1, 2, 8, 6}, {3, 2}, {.stride = {2, 1}, .padding = {0, 1}}},
      {{1, 2, 9, 8}, {2, 3}, {.stride = {1, 1}, .dilation = {3, 2}}},
      {{1, 2, 6, 7}, {2, 2}, {.ceil_mode = true}},
      {{2, 1, 5, 5}, {2, 3}, {.stride = {3, 2}, .padding = {1, 1}, .ceil_mode = true}},
      {{1, 2, 10, 9}, {3, 3}, {{2, 2}, {1, 1}, {2, 1}, true}},
      {{1, 1, 4, 4}, {2, 2}, {.stride = {3, 3}, .padding = {1, 1}, .ceil_mode = true}},
      {{1, 2, 2, 2}, {3, 3}, {.stride = {2, 2}, .ceil_mode = true}},
      {{1, 1, 3, 5}, {4, 2}, {.stride = {2, 2}, .ceil_mode = true}},
  };
  for (const Case& c : cases) {
    const auto pair = [](Pair a) { return concat("(", a[0], ", ", a[1], ")"); };
    all.push_back(
        {concat("F.max_pool2d(x[0], ", pair(c.kernel), ", ",
                c.o.stride ? pair(*c.o.stride) : "None", ", ", pair(c.o.padding), ", ",
                pair(c.o.dilation), ", ", c.o.ceil_mode ? "True" : "False", ")"),
         [c](const Tensors& x, const Tensors&) { return max_pool2d(x[0], c.kernel, c.o); },
         {{c.x, Values::distinct}}});
  }
}

void add_averages(std::vector<OpCase>& all) {
  const auto add = [&](std::string torch, const Shape& shape, auto op) {
    all.push_back(
        {std::move(torch), [op](const Tensors& x, const Tensors&) { return op(x[0]); }, {{shape}}});
  };
  add("F.avg_pool2d(x[0], 2)", {2, 3, 5, 7}, [](const Tensor& x) { return avg_pool2d(x, {2, 2}); });
  add("F.avg_pool2d(x[0], (3, 2), (1, 2), (1, 1))", {1, 2, 6, 5}, [](const Tensor& x) {
    return avg_pool2d(x, {3, 2}, {.stride = {1, 2}, .padding = {1, 1}});
  });
  add("F.avg_pool2d(x[0], 3, 2, 1, False, False)", {2, 1, 7, 6}, [](const Tensor& x) {
    return avg_pool2d(x, {3, 3}, {{2, 2}, {1, 1}, false, false});
  });
  for (const auto& [h, w] : std::vector<std::pair<int, int>>{{1, 1}, {2, 3}, {4, 5}, {7, 6}}) {
    add(concat("F.adaptive_avg_pool2d(x[0], (", h, ", ", w, "))"), {2, 3, 5, 7},
        [h = h, w = w](const Tensor& x) {
          return adaptive_avg_pool2d(x, {h, w});
        });
  }
}

void add_extremes(std::vector<OpCase>& all) {
  const auto add = [&](std::string torch, auto op) {
    all.push_back({std::move(torch),
                   [op](const Tensors& x, const Tensors&) { return op(x[0]); },
                   {{{3, 5, 2}, Values::distinct}}});
  };
  for (const int dim : {0, 1, -1}) {
    for (const bool keep : {false, true}) {
      const std::string rest = concat("(x[0], ", dim, ", ", keep ? "True" : "False", ")");
      add("torch.max" + rest + ".values",
          [=](const Tensor& x) { return max(x, dim, keep).values; });
      add("torch.min" + rest + ".values",
          [=](const Tensor& x) { return min(x, dim, keep).values; });
      add("torch.max" + rest + ".indices * x[0].sum()",
          [=](const Tensor& x) { return cast(max(x, dim, keep).indices, x.dtype()) * sum(x); });
      add("torch.min" + rest + ".indices * x[0].sum()",
          [=](const Tensor& x) { return cast(min(x, dim, keep).indices, x.dtype()) * sum(x); });
    }
  }
  add("x[0].max()", [](const Tensor& x) { return max(x); });
  add("x[0].min()", [](const Tensor& x) { return min(x); });
}

void add_losses(std::vector<OpCase>& all) {
  const Tensor target = Tensor::from(std::vector<std::int64_t>{2, 0, -100, 3, 1, 3}, {6});
  const std::pair<const char*, Reduction> reductions[] = {
      {"none", Reduction::none}, {"mean", Reduction::mean}, {"sum", Reduction::sum}};
  for (const auto& [name, how] : reductions) {
    const std::string reduction = concat("reduction='", name, "'");
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      all.push_back(
          {concat("F.cross_entropy(x[0], k[0], label_smoothing=", smoothing, ", ", reduction, ")"),
           [how = how, smoothing](const Tensors& x, const Tensors& k) {
             return cross_entropy(x[0], k[0], how, -100, smoothing);
           },
           {{{6, 5}}},
           {target}});
    }
    all.push_back(
        {concat("F.nll_loss(x[0], k[0], ignore_index=3, ", reduction, ")"),
         [how = how](const Tensors& x, const Tensors& k) { return nll_loss(x[0], k[0], how, 3); },
         {{{3, 5}}},
         {Tensor::from(std::vector<std::int64_t>{2, 3, 4}, {3})}});
    const auto pair = [&](std::string torch, auto op) {
      for (const Shape& shape : {Shape{}, Shape{3, 17}}) {
        all.push_back(
            {concat(torch, ", ", reduction, ")"),
             [op, how = how](const Tensors& x, const Tensors&) { return op(x[0], x[1], how); },
             {{shape, Values::distinct}, {shape}}});
      }
    };
    pair("F.mse_loss(x[0], x[1]",
         [](const Tensor& x, const Tensor& t, Reduction r) { return mse_loss(x, t, r); });
    pair("F.smooth_l1_loss(x[0], x[1]",
         [](const Tensor& x, const Tensor& t, Reduction r) { return smooth_l1_loss(x, t, r); });
    pair(
        "F.smooth_l1_loss(x[0], x[1], beta=0.3",
        [](const Tensor& x, const Tensor& t, Reduction r) { return smooth_l1_loss(x, t, r, 0.3); });
    pair("F.binary_cross_entropy_with_logits(x[0] * 20, x[1].sigmoid()",
         [](const Tensor& x, const Tensor& t, Reduction r) {
           return binary_cross_entropy_with_logits(x * 20.0, sigmoid(t), r);
         });
  }
}

}  // namespace

std::vector<OpCase> image_cases() {
  std::vector<OpCase> all;
  add_convolutions(all);
  add_sequences(all);
  add_maxima(all);
  add_averages(all);
  add_extremes(all);
  add_losses(all);
  return all;
}

}  // namespace peal::test
