// SPDX-License-Identifier: Apache-2.0
// Order, counts and places of every type, with NaN and equal elements.
#include "value_rows.h"

#include <cmath>

namespace peal::test {

void add_order(Rows& rows) {
  const Tensor whole =
      Tensor::from(std::vector<float>{3, 0, 1, 0, 5, 2, 0, 0, 7, 1, 0, 4, 1, 1, 2}, {3, 5});
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64,
                            DType::u8, DType::i8, DType::boolean}) {
    const Tensor x = cast(whole, dtype);
    for (const int dim : {0, 1}) {
      rows.add(concat("x[0].sort(dim=", dim, ", stable=True)[0]"), {x}, sort(x, dim).values);
      rows.add(concat("x[0].sort(dim=", dim, ", stable=True)[1]"), {x}, sort(x, dim).indices);
      rows.add(concat("x[0].sort(dim=", dim, ", stable=True, descending=True)[1]"), {x},
               argsort(x, dim, true));
    }
    rows.add("x[0].unique()", {x}, unique(x).values);
    rows.add("x[0].unique(return_inverse=True)[1]", {x}, unique(x).inverse);
    rows.add("x[0].unique(return_counts=True)[1]", {x}, unique(x).counts);
    rows.add("x[0].unique_consecutive(return_counts=True)[0]", {x}, unique_consecutive(x).values);
    rows.add("x[0].unique_consecutive(return_inverse=True)[1]", {x}, unique_consecutive(x).inverse);
    rows.add("x[0].unique_consecutive(return_counts=True)[1]", {x}, unique_consecutive(x).counts);
    for (const int dim : {0, 1, -1}) {
      // Rows and columns that are equal, and that differ late.
      const Tensor more = stack({x, x, flip(x, 0)}, 1), cube = cat({more, more}, dim);
      const Unique all = unique(cube, dim), next = unique_consecutive(cube, dim);
      for (const auto& [what, found] : {std::pair("", &all), std::pair("_consecutive", &next)}) {
        // Along a last dimension PyTorch 1.13 orders slices by their transposes.
        const bool last = dim == -1;
        const std::string torch =
            concat("torch.unique", what, last ? "(x[0].movedim(-1, 0), dim=0" : "(x[0], dim=",
                   last ? "" : std::to_string(dim), ", return_inverse=True, return_counts=True)");
        rows.add(torch + "[0]", {cube}, last ? movedim(found->values, -1, 0) : found->values);
        rows.add(torch + "[1]", {cube}, found->inverse);
        rows.add(torch + "[2]", {cube}, found->counts);
      }
    }
    if (dtype == DType::boolean) continue;
    rows.add("x[0].topk(3)[0]", {x}, topk(x, 3).values);
    rows.add("x[0].topk(2, 0, False)[0]", {x}, topk(x, 2, 0, false).values);
    rows.add("x[0].kthvalue(4)[0]", {x}, kthvalue(x, 4).values);
    rows.add("x[0].median()", {x}, median(x));
    rows.add("x[0].median(0, True)[0]", {x}, median(x, 0, true).values);
    rows.add("x[0].mode()[0]", {x}, mode(x).values);
    rows.add("x[0].mode()[1]", {x}, mode(x).indices);
    rows.add("x[0].mode(0, True)[0]", {x}, mode(x, 0, true).values);
    const Tensor line = sort(x.rows(0, 1).reshape({5})).values;
    for (const bool right : {false, true}) {
      const std::string way = right ? "right=True)" : "right=False)";
      rows.add("torch.searchsorted(x[0], x[1], " + way, {line, x}, searchsorted(line, x, right));
      rows.add("torch.bucketize(x[1], x[0], " + way, {line, x}, bucketize(x, line, right));
      const Tensor lines = sort(x).values, some = slice(x, 1, 0, 3).clone();
      rows.add("torch.searchsorted(x[0], x[1], " + way, {lines, some},
               searchsorted(lines, some, right));
      rows.add("torch.searchsorted(x[0], 2, " + way, {line}, searchsorted(line, 2, right));
    }
    const Tensor tests = cast(tensor({{7, 2, 2}, {0, 9, 2}}), dtype),
                 many = cast(arange(3, 100), dtype);
    rows.add("torch.isin(x[0], x[1])", {x, tests}, isin(x, tests));
    rows.add("torch.isin(x[0], x[1], invert=True)", {x, tests}, isin(x, tests, true));
    rows.add("torch.isin(x[0], x[1])", {x, many}, isin(x, many));
    rows.add("torch.isin(x[0], x[1])", {x, slice(many, 0, 0, 0)}, isin(x, slice(many, 0, 0, 0)));
    rows.add("torch.isin(x[0], 2)", {x}, isin(x, 2));
    rows.add("torch.isin(x[0], 2, invert=True)", {x}, isin(x, 2, true));
    rows.add("torch.isin(2, x[0])", {x}, isin(2, x));
    rows.add("torch.isin(2, x[0], invert=True)", {x}, isin(2, x, true));
    if (is_floating(dtype)) continue;
    const Tensor flat = x.reshape({15});
    rows.add("x[0].bincount()", {flat}, bincount(flat));
    rows.add("x[0].bincount(minlength=12)", {flat}, bincount(flat, {}, 12));
    for (const DType weight : {DType::f32, DType::f64, DType::f16, DType::i64}) {
      const Tensor weights = cast(whole, weight).reshape({15});
      rows.add("x[0].bincount(x[1])", {flat, weights}, bincount(flat, weights));
    }
  }
  Tensor nan = whole.clone();
  nan[0][1] = NAN;
  nan[2][4] = NAN;
  nan[1][0] = INFINITY;
  nan[1][1] = -INFINITY;
  rows.add("x[0].sort(dim=1, stable=True)[0]", {nan}, sort(nan).values);
  rows.add("x[0].sort(dim=1, stable=True, descending=True)[1]", {nan}, sort(nan, 1, true).indices);
  rows.add("x[0].topk(2)[0]", {nan}, topk(nan, 2).values);
  rows.add("x[0].topk(2, largest=False)[0]", {nan}, topk(nan, 2, -1, false).values);
  rows.add("x[0].kthvalue(5)[0]", {nan}, kthvalue(nan, 5).values);
  rows.add("x[0].median()", {nan}, median(nan));
  rows.add("x[0].median(1)[0]", {nan}, median(nan, 1).values);
  rows.add("x[0].median(1)[1]", {nan}, median(nan, 1).indices);
  rows.add("x[0].nanmedian()", {nan}, nanmedian(nan));
  rows.add("x[0].nanmedian(1)[0]", {nan}, nanmedian(nan, 1).values);
  rows.add("x[0].quantile(0.5, 0)", {nan}, quantile(nan, 0.5, 0));
  rows.add("torch.tensor([math.nan] * 3).nanmedian()", {}, nanmedian(full({3}, NAN)));
  rows.add("torch.searchsorted(torch.tensor([1., 2, math.nan]), x[0])", {nan},
           searchsorted(tensor({1., 2., NAN}), nan));
  const Tensor zeros_and_more = tensor({-0., NAN, 7., INFINITY});
  for (const Tensor& tests : {zeros_and_more, repeat(zeros_and_more, {30})}) {
    rows.add("torch.isin(x[0], x[1])", {nan, tests}, isin(nan, tests));
  }
  const Tensor halves = tensor({2.5, 2.}), counted = cast(whole, DType::i64);
  rows.add("torch.isin(x[0], x[1])", {counted, halves}, isin(counted, halves));
  rows.add("torch.isin(x[0], x[1])", {halves, counted}, isin(halves, counted));
  rows.add("torch.isin(x[0], 2.5)", {counted}, isin(counted, 2.5));
  rows.add("torch.isin(x[0][0], x[0])", {halves}, isin(halves[0], halves));
  rows.add("x[0].histc(4)", {whole}, histc(whole, 4));
  rows.add("x[0].histc(5, 1, 4)", {whole}, histc(whole, 5, 1, 4));
  rows.add("x[0].double().histc(3, 2, 2)", {whole}, histc(cast(whole, DType::f64), 3, 2, 2));
  rows.add("torch.ones(4).histc(3)", {}, histc(ones({4}), 3));
  rows.add("torch.zeros(0, dtype=torch.int64).bincount(minlength=2)", {},
           bincount(Tensor::empty({0}, DType::i64), {}, 2));
  rows.add("torch.zeros(0, 3).sort(0)[0]", {}, sort(Tensor::zeros({0, 3}), 0).values);
  rows.add("torch.zeros(0, 3).unique()", {}, unique(Tensor::zeros({0, 3})).values);
  const Tensor none = Tensor::zeros({2, 0, 3}), single = tensor({{3., 1., 3.}});
  rows.add("x[0].unique(dim=1)", {none}, unique(none, 1).values);
  rows.add("x[0].unique(dim=1, return_counts=True)[1]", {none}, unique(none, 1).counts);
  rows.add("x[0].unique(dim=0)", {single}, unique(single, 0).values);
  rows.add("x[0].unique(dim=1, return_inverse=True)[1]", {single}, unique(single, 1).inverse);
  manual_seed(3);
  const Tensor many = randint(0, 3, {200, 7});
  rows.add("x[0].unique(dim=0)", {many}, unique(many, 0).values);
  rows.add("x[0].unique(dim=0, return_inverse=True)[1]", {many}, unique(many, 0).inverse);
  rows.add("x[0].unique(dim=0, return_counts=True)[1]", {many}, unique(many, 0).counts);
}

}  // namespace peal::test
