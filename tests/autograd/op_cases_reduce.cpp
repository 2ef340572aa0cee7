// SPDX-License-Identifier: Apache-2.0
// Reductions and scans.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

#include <limits>

namespace peal::test {
namespace {

using Reduction = std::function<Tensor(const Tensor&)>;
constexpr double infinity = std::numeric_limits<double>::infinity();

class Table {
 public:
  void add(const std::string& torch, const Reduction& op, const Shape& shape,
           Values values = Values::normal, Tensors constants = {}) {
    rows_.push_back({torch,
                     [op](const Tensors& x, const Tensors&) { return op(x[0]); },
                     {{shape, values}},
                     std::move(constants)});
  }
  // Of elements that the mask, the constant, picks, zeros are made that want a gradient; which
  // differences do not see.
  void add_with_zeros(const std::string& torch, const Reduction& op, const Shape& shape,
                      const Tensor& mask) {
    rows_.push_back({"(lambda z: " + torch + ")(torch.where(k[0], x[0] - x[0].detach(), x[0]))",
                     [op](const Tensors& x, const Tensors& k) {
                       return op(where(k[0], x[0] - x[0].detach(), x[0]));
                     },
                     {{shape, Values::nonzero}},
                     {mask},
                     false});
  }
  std::vector<OpCase> take() { return std::move(rows_); }

 private:
  std::vector<OpCase> rows_;
};

void add_reductions(Table& table) {
  const Shape shape{3, 4, 5};
  for (const bool keep : {false, true}) {
    const std::string last = keep ? ", keepdim=True)" : ")";
    for (const int dim : {0, 1, -1}) {
      const std::string at = concat("(", dim, last);
      const std::string by = concat("(x[0], dim=", dim, last);
      table.add(
          "x[0].sum" + at, [=](const Tensor& x) { return sum(x, dim, keep); }, shape);
      table.add(
          "x[0].mean" + at, [=](const Tensor& x) { return mean(x, dim, keep); }, shape);
      table.add(
          "x[0].prod" + at, [=](const Tensor& x) { return prod(x, dim, keep); }, shape,
          Values::nonzero);
      table.add(
          "x[0].amax" + at, [=](const Tensor& x) { return amax(x, dim, keep); }, shape,
          Values::distinct);
      table.add(
          "torch.amin" + by, [=](const Tensor& x) { return aminmax(x, dim, keep).min; }, shape,
          Values::distinct);
      table.add(
          "torch.logsumexp" + by, [=](const Tensor& x) { return logsumexp(x, dim, keep); }, shape);
      table.add(
          "torch.var" + by, [=](const Tensor& x) { return var(x, dim, 1, keep); }, shape);
    }
    const std::string both = "(x[0], dim=(0, 2)" + last;
    table.add(
        "torch.amin" + both,
        [=](const Tensor& x) {
          return amin(x, {0, 2}, keep);
        },
        shape, Values::distinct);
    table.add(
        "torch.nansum" + both,
        [=](const Tensor& x) {
          return nansum(x, {0, 2}, keep);
        },
        shape);
    table.add(
        "torch.logsumexp" + both,
        [=](const Tensor& x) {
          return logsumexp(x, {0, 2}, keep);
        },
        shape);
    for (const int correction : {0, 1}) {
      const std::string unbiased = concat(", unbiased=", correction == 1 ? "True" : "False", last);
      table.add(
          "torch.std(x[0], dim=(0, 2)" + unbiased,
          [=](const Tensor& x) {
            return peal::std(x, {0, 2}, correction, keep);
          },
          shape);
      table.add(
          "torch.var_mean(x[0], dim=(1,)" + unbiased + "[1]",
          [=](const Tensor& x) { return var_mean(x, 1, correction, keep).second; }, shape);
      table.add(
          "torch.std_mean(x[0], dim=(1,)" + unbiased + "[0]",
          [=](const Tensor& x) { return std_mean(x, 1, correction, keep).first; }, shape);
    }
    for (const double p : {2.0, 1.0, 3.0, 0.5, -1.0, infinity, -infinity}) {
      const std::string order = std::isinf(p) ? (p > 0 ? "torch.inf" : "-torch.inf") : concat(p);
      table.add(
          "torch.linalg.vector_norm(x[0], " + order + ", dim=(0, 2)" + last,
          [=](const Tensor& x) {
            return norm(x, p, {0, 2}, keep);
          },
          {3, 2, 4}, Values::nonzero);
    }
  }
  table.add(
      "x[0].prod()", [](const Tensor& x) { return prod(x); }, {2, 3}, Values::nonzero);
  table.add(
      "x[0].amax()", [](const Tensor& x) { return amax(x); }, shape, Values::distinct);
  table.add(
      "x[0].var()", [](const Tensor& x) { return var(x); }, shape);
  table.add(
      "x[0].std(unbiased=False)", [](const Tensor& x) { return peal::std(x, false); }, shape);
  table.add(
      "x[0].norm()", [](const Tensor& x) { return norm(x); }, shape);
  table.add(
      "x[0].norm(1)", [](const Tensor& x) { return norm(x, 1); }, shape, Values::distinct);
  // Two of each share the gradient.
  table.add(
      "torch.cat((x[0], x[0]), 1).amax(1)",
      [](const Tensor& x) {
        return amax(cat({x, x}, 1), 1);
      },
      shape, Values::distinct);
  table.add(
      "torch.cat((x[0], x[0]), 1).max()",
      [](const Tensor& x) {
        return max(cat({x, x}, 1));
      },
      shape, Values::distinct);
  table.add(
      "torch.where(x[0] > 0.25, torch.nan, x[0]).nanmean((0, 2))",
      [](const Tensor& x) {
        return nanmean(where(x > 0.25, std::numeric_limits<double>::quiet_NaN(), x), {0, 2});
      },
      {3, 4, 5}, Values::distinct);
}

void add_scans(Table& table) {
  for (const int dim : {0, 1, -1}) {
    const std::string at = concat("(x[0], dim=", dim, ")");
    const Shape shape{3, 6, 2};
    table.add(
        "torch.cumprod" + at, [=](const Tensor& x) { return cumprod(x, dim); }, shape,
        Values::nonzero);
    table.add(
        "torch.logcumsumexp" + at, [=](const Tensor& x) { return logcumsumexp(x, dim); }, shape);
    table.add(
        "torch.cummax" + at + ".values", [=](const Tensor& x) { return cummax(x, dim).values; },
        shape, Values::distinct);
    table.add(
        "torch.cummin" + at + ".values", [=](const Tensor& x) { return cummin(x, dim).values; },
        shape, Values::distinct);
    table.add(
        "torch.diff" + at, [=](const Tensor& x) { return diff(x, 1, dim); }, shape);
  }
  table.add("torch.diff(x[0], n=2)", [](const Tensor& x) { return diff(x, 2); }, {3, 5});
}

}  // namespace

std::vector<OpCase> reduce_cases() {
  Table table;
  add_reductions(table);
  add_scans(table);
  // One 0 in the first line, none in the second, two in the third.
  const Tensor mask = cast(Tensor::from(std::vector<std::int64_t>{0, 1, 0, 0,  //
                                                                  0, 0, 0, 0,  //
                                                                  0, 1, 1, 0},
                                        {3, 4}),
                           DType::boolean);
  table.add_with_zeros(
      "z.prod(1)", [](const Tensor& z) { return prod(z, 1); }, {3, 4}, mask);
  table.add_with_zeros(
      "z.prod(0)", [](const Tensor& z) { return prod(z, 0); }, {3, 4}, mask);
  table.add_with_zeros(
      "z.prod()", [](const Tensor& z) { return prod(z); }, {3, 4}, mask);
  table.add_with_zeros(
      "z.cumprod(1)", [](const Tensor& z) { return cumprod(z, 1); }, {3, 4}, mask);
  table.add_with_zeros(
      "z.cumprod(0)", [](const Tensor& z) { return cumprod(z, 0); }, {3, 4}, mask);
  table.add_with_zeros(
      "z[:, 1:3].norm(2, dim=1)", [](const Tensor& z) { return norm(slice(z, 1, 1, 3), 2, 1); },
      {3, 4}, mask);
  return table.take();
}

}  // namespace peal::test
