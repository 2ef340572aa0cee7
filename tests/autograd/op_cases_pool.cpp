// SPDX-License-Identifier: Apache-2.0
// Pools of sequences and volumes, shares, the way back, other sizes, and CTC.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {
namespace {

class Adder {
 public:
  explicit Adder(std::vector<OpCase>& all) : all_(all) {}
  template <class Op>
  void operator()(std::string torch, const Shape& shape, const Op& op,
                  Values values = Values::distinct, std::string needs = {}) {
    all_.push_back({std::move(torch),
                    [op](const Tensors& x, const Tensors&) { return op(x[0]); },
                    {{shape, values}},
                    {},
                    true,
                    std::move(needs)});
  }

 private:
  std::vector<OpCase>& all_;
};

// Indices, where their gradient is that of what they are multiplied by.
Tensor seen(const Extreme& found, const Tensor& x) {
  return cast(found.indices, x.dtype()) * sum(x);
}

void add_largest(Adder& add) {
  add("F.max_pool1d(x[0], 2)", {2, 3, 5}, [](const Tensor& x) { return max_pool1d(x, 2); });
  add("F.max_pool1d(x[0], 3, 2, 1, 2, True)", {3, 8}, [](const Tensor& x) {
    return max_pool1d(x, 3, {Single(2), 1, 2, true});
  });
  add("F.max_pool2d(x[0], 2, 1)", {2, 3, 4},
      [](const Tensor& x) { return max_pool2d(x, 2, {.stride = 1}); });
  add("F.max_pool3d(x[0], 2)", {1, 2, 4, 2, 4}, [](const Tensor& x) { return max_pool3d(x, 2); });
  const MaxPool3dOptions o{{1, 2, 1}, {1, 0, 1}, {1, 2, 1}, true};
  const std::string options = "(x[0], (2, 2, 3), (1, 2, 1), (1, 0, 1), (1, 2, 1), True";
  add("F.max_pool3d" + options + ")", {2, 3, 4, 4}, [o](const Tensor& x) {
    return max_pool3d(x, {2, 2, 3}, o);
  });
  add("F.max_pool3d" + options + ", True)[1] * x[0].sum()", {2, 3, 4, 4}, [o](const Tensor& x) {
    return seen(max_pool3d_with_indices(x, {2, 2, 3}, o), x);
  });
  add("F.max_pool2d(x[0], (3, 2), 2, 1, return_indices=True)[1] * x[0].sum()", {1, 2, 5, 4},
      [](const Tensor& x) {
        return seen(max_pool2d_with_indices(x, {3, 2}, {.stride = 2, .padding = 1}), x);
      });
  add("F.max_pool1d(x[0], 2, return_indices=True)[1] * x[0].sum()", {2, 2, 6},
      [](const Tensor& x) { return seen(max_pool1d_with_indices(x, 2), x); });
  // Windows of more than 256 cells.
  add("F.max_pool1d(x[0], 257, 5, 10)", {1, 1, 256},
      [](const Tensor& x) { return max_pool1d(x, 257, {.stride = 5, .padding = 10}); });
  add("F.max_pool2d(x[0], (17, 16), 1, (2, 0), return_indices=True)[1] * x[0].sum()",
      {1, 1, 16, 16}, [](const Tensor& x) {
        return seen(max_pool2d_with_indices(x, {17, 16}, {.stride = 1, .padding = {2, 0}}), x);
      });
  add("F.max_unpool2d(*F.max_pool2d(x[0], 2, return_indices=True), 2, output_size=(5, 4))",
      {1, 2, 5, 4}, [](const Tensor& x) {
        const Extreme found = max_pool2d_with_indices(x, 2);
        return max_unpool2d(found.values, found.indices, 2, {.output_size = Pair(5, 4)});
      });
  add("F.max_unpool1d(*F.max_pool1d(x[0], 3, 3, 1, return_indices=True), 3, 3, 1)", {2, 7},
      [](const Tensor& x) {
        const Extreme found = max_pool1d_with_indices(x, 3, {.stride = 3, .padding = 1});
        return max_unpool1d(found.values, found.indices, 3, {.stride = 3, .padding = 1});
      });
  add("F.max_unpool3d(*F.max_pool3d(x[0], 2, return_indices=True), 2)", {1, 2, 2, 4, 2},
      [](const Tensor& x) {
        const Extreme found = max_pool3d_with_indices(x, 2);
        return max_unpool3d(found.values, found.indices, 2);
      });
}

void add_means(Adder& add) {
  add("F.avg_pool1d(x[0], 3, 2, 1)", {2, 3, 6},
      [](const Tensor& x) { return avg_pool1d(x, 3, {.stride = 2, .padding = 1}); });
  add("F.avg_pool1d(x[0], 3, 2, 1, True, False)", {3, 6}, [](const Tensor& x) {
    return avg_pool1d(x, 3, {Single(2), 1, true, false});
  });
  for (const bool counted : {true, false}) {
    add(concat("F.avg_pool2d(x[0], (3, 2), 2, (1, 0), True, ", counted ? "True)" : "False)"),
        {2, 2, 6, 5}, [counted](const Tensor& x) {
          return avg_pool2d(x, {3, 2}, {2, {1, 0}, true, counted});
        });
    add(concat("F.avg_pool3d(x[0], (2, 3, 1), 2, (1, 1, 0), True, ", counted ? "True)" : "False)"),
        {1, 2, 4, 4, 3}, [counted](const Tensor& x) {
          return avg_pool3d(x, {2, 3, 1}, {2, {1, 1, 0}, true, counted});
        });
  }
  add("F.avg_pool2d(x[0], 3, 2, 1, True, divisor_override=5)", {2, 6, 5}, [](const Tensor& x) {
    return avg_pool2d(x, 3, {2, 1, true, true, 5});
  });
  add("F.avg_pool3d(x[0], 2, divisor_override=3)", {1, 2, 2, 4, 3},
      [](const Tensor& x) { return avg_pool3d(x, 2, {.divisor_override = 3}); });
  add(
      "F.lp_pool1d(x[0], 3, 2)", {2, 5}, [](const Tensor& x) { return lp_pool1d(x, 3, 2); },
      Values::positive);
  add(
      "F.lp_pool2d(x[0], 2, (2, 3), 1, True)", {1, 2, 3, 4},
      [](const Tensor& x) {
        return lp_pool2d(x, 2, {2, 3}, 1, true);
      },
      Values::positive);
  add(
      "F.lp_pool3d(x[0], 2, 2)", {1, 2, 2, 4, 2},
      [](const Tensor& x) { return lp_pool3d(x, 2, 2); }, Values::positive, "F.lp_pool3d");
}

void add_shares(Adder& add) {
  add("F.adaptive_avg_pool1d(x[0], 3)", {2, 2, 7},
      [](const Tensor& x) { return adaptive_avg_pool1d(x, 3); });
  add("F.adaptive_avg_pool2d(x[0], (2, 3))", {2, 3, 4}, [](const Tensor& x) {
    return adaptive_avg_pool2d(x, {2, 3});
  });
  add("F.adaptive_avg_pool3d(x[0], (2, 1, 3))", {1, 2, 3, 3, 4}, [](const Tensor& x) {
    return adaptive_avg_pool3d(x, {2, 1, 3});
  });
  add("F.adaptive_max_pool1d(x[0], 3)", {2, 7},
      [](const Tensor& x) { return adaptive_max_pool1d(x, 3); });
  add("F.adaptive_max_pool2d(x[0], (2, 3))", {2, 2, 5, 4}, [](const Tensor& x) {
    return adaptive_max_pool2d(x, {2, 3});
  });
  add("F.adaptive_max_pool3d(x[0], (2, 1, 2))", {1, 2, 3, 3, 4}, [](const Tensor& x) {
    return adaptive_max_pool3d(x, {2, 1, 2});
  });
  add("F.adaptive_max_pool3d(x[0], (2, 1, 2), True)[1] * x[0].sum()", {1, 2, 3, 3, 4},
      [](const Tensor& x) {
        return seen(adaptive_max_pool3d_with_indices(x, {2, 1, 2}), x);
      });
}

void add_sizes(Adder& add) {
  using Mode = InterpolateMode;
  struct Case {
    const char* torch;
    Shape x;
    InterpolateOptions o;
  };
  const std::vector<Case> cases = {
      {"size=8", {2, 2, 5}, {.size = 8}},
      {"scale_factor=1.5", {2, 2, 3, 5}, {.scale_factor = 1.5}},
      {"scale_factor=1.5, recompute_scale_factor=True",
       {2, 2, 3, 5},
       {.scale_factor = 1.5, .recompute_scale_factor = true}},
      {"size=(4, 2, 5)", {1, 2, 2, 3, 3}, {.size = {4, 2, 5}}},
      {"size=(5, 3), mode='nearest-exact'",
       {1, 2, 3, 7},
       {.size = {5, 3}, .mode = Mode::nearest_exact}},
      {"size=6, mode='linear'", {2, 2, 4}, {.size = 6, .mode = Mode::linear}},
      {"size=6, mode='linear', align_corners=True",
       {2, 2, 4},
       {.size = 6, .mode = Mode::linear, .align_corners = true}},
      {"scale_factor=(2, 1.5), mode='bilinear', align_corners=False",
       {2, 2, 3, 4},
       {.scale_factor = {2, 1.5}, .mode = Mode::bilinear, .align_corners = false}},
      {"size=(1, 3), mode='bilinear', align_corners=True",
       {2, 2, 3, 4},
       {.size = {1, 3}, .mode = Mode::bilinear, .align_corners = true}},
      {"size=(5, 3), mode='bicubic'", {1, 2, 4, 5}, {.size = {5, 3}, .mode = Mode::bicubic}},
      {"scale_factor=1.7, mode='bicubic', align_corners=True",
       {1, 2, 4, 3},
       {.scale_factor = 1.7, .mode = Mode::bicubic, .align_corners = true}},
      {"size=(3, 2, 4), mode='trilinear'",
       {1, 2, 2, 3, 3},
       {.size = {3, 2, 4}, .mode = Mode::trilinear}},
      {"size=(2, 3), mode='area'", {2, 2, 3, 4}, {.size = {2, 3}, .mode = Mode::area}},
      {"size=(3, 5), mode='bilinear', antialias=True",
       {1, 2, 8, 4},
       {.size = {3, 5}, .mode = Mode::bilinear, .antialias = true}},
      {"size=(2, 3), mode='bicubic', antialias=True",
       {1, 2, 7, 5},
       {.size = {2, 3}, .mode = Mode::bicubic, .antialias = true}},
  };
  for (const Case& c : cases) {
    add(
        concat("F.interpolate(x[0], ", c.torch, ")"), c.x,
        [o = c.o](const Tensor& x) { return interpolate(x, o); }, Values::normal);
  }
}

void add_fractions(std::vector<OpCase>& all) {
  const Tensor samples = tensor({{{0.3, 0.77}, {0.05, 0.61}}, {{0.9, 0.2}, {0.45, 0.5}}});
  const auto add = [&](const std::string& torch, const Shape& shape, const Tensor& k, auto op) {
    all.push_back({torch + "_random_samples=k[0].to(x[0].dtype))",
                   [op](const Tensors& x, const Tensors& given) {
                     return op(x[0], cast(given[0], x[0].dtype()));
                   },
                   {{shape, Values::distinct}},
                   {k}});
  };
  add("F.fractional_max_pool2d(x[0], (2, 3), (4, 3), ", {2, 2, 7, 8}, samples,
      [](const Tensor& x, const Tensor& k) {
        return fractional_max_pool2d(x, {2, 3}, {.output_size = Pair(4, 3), .random_samples = k});
      });
  add("F.fractional_max_pool2d(x[0], 2, output_ratio=(0.6, 0.2), ", {2, 6, 7}, samples.rows(1, 2),
      [](const Tensor& x, const Tensor& k) {
        return fractional_max_pool2d(x, 2, {.output_ratio = {{0.6, 0.2}}, .random_samples = k});
      });
  add("(lambda **o: F.fractional_max_pool2d(x[0], 2, 5, return_indices=True, **o)[1] * "
      "x[0].sum())(",
      {2, 2, 6, 8}, samples, [](const Tensor& x, const Tensor& k) {
        return seen(
            fractional_max_pool2d_with_indices(x, 2, {.output_size = 5, .random_samples = k}), x);
      });
}

// Too large for second derivatives, which there are none of.
void add_alignments(std::vector<OpCase>& all) {
  const auto i64 = [](std::vector<std::int64_t> values, const Shape& shape) {
    return Tensor::from(values, shape);
  };
  const Tensor padded = i64({1, 2, 1, 3, 3, 0, 2, 4, 5, 1, 0, 0, 4, 4, 4}, {5, 3});
  const Tensor inputs = i64({7, 6, 7, 4, 7}, {5}), lengths = i64({3, 2, 3, 1, 3}, {5});
  const auto add = [&](const char* options, const CTCOptions& o, const Tensors& k,
                       const Shape& shape = {7, 5, 6}) {
    all.push_back(
        {concat("F.ctc_loss((x[0] * 0.5).log_softmax(-1), k[0], k[1], k[2]", options, ")"),
         [o](const Tensors& x, const Tensors& tensors) {
           return ctc_loss(log_softmax(x[0] * 0.5, -1), tensors[0], tensors[1], tensors[2], o);
         },
         {{shape}},
         k});
  };
  add("", {}, {padded, inputs, lengths});
  add(", reduction='none'", {.reduction = Reduction::none}, {padded, inputs, lengths});
  add(", blank=5, reduction='sum'", {.blank = 5, .reduction = Reduction::sum},
      {i64({1, 2, 1, 3, 3, 2, 4, 0, 4, 4, 4}, {11}), inputs, i64({3, 2, 3, 0, 3}, {5})});
  add(", zero_infinity=True", {.zero_infinity = true},
      {padded, i64({7, 2, 2, 4, 7}, {5}), lengths});
  add(", reduction='none'", {.reduction = Reduction::none},
      {i64({2, 2, 1}, {3}), i64({36}, {1}), i64({3}, {1})}, {36, 6});
}

}  // namespace

std::vector<OpCase> pool_cases() {
  std::vector<OpCase> all;
  Adder add(all);
  add_largest(add);
  add_means(add);
  add_shares(add);
  add_sizes(add);
  add_fractions(all);
  add_alignments(all);
  return all;
}

}  // namespace peal::test
