// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/counting.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/masked.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/operands.h>
#include <peal/autograd/ops/order.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/promotion.h>
#include <peal/autograd/ops/rearrange.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/scan.h>
#include <peal/autograd/ops/scatter.h>

namespace peal {
namespace {

// How many come to each place.
Tensor counted(std::int64_t places, const Tensor& place) {
  const Tensor none = Tensor::zeros({places}, DType::i64, place.device());
  return scatter_add(none, 0, place, full(place.shape(), 1, DType::i64, place.device()));
}

// Runs of equal ones among n > 0 in a row, where each but the first differs from the one before it
// or not: where runs begin, which run each is of, and the runs' lengths.
struct Runs {
  Tensor begins, run, counts;
};
Runs runs_of(const Tensor& differs) {
  const Tensor begins = cat({full({1}, 1, DType::boolean, differs.device()), differs});
  const Tensor run = cumsum(cast(begins, DType::i64), 0) - 1;
  const std::int64_t n = run.numel(), count = run.rows(n - 1, n).item<std::int64_t>() + 1;
  return {begins, run, counted(count, run)};
}
// Whether each of x's elements or slices but the first differs from the one before it.
Tensor differing(const Tensor& x) {
  const std::int64_t n = x.size(0);
  return ne(x.rows(1, n), x.rows(0, n - 1));
}

Unique of_none(const Tensor& x) {
  const Tensor none = Tensor::empty({0}, DType::i64, x.device());
  return {Tensor::empty({0}, x.dtype(), x.device()), none.detach(x.shape()), none};
}

// x's slices along a dimension as rows [n, m], n and m above 0.
struct Slices {
  Tensor slices, rows;  // the dimension first; and as a matrix
  int dim;
  Tensor chosen(const Tensor& index) const {
    return movedim(index_select(slices, 0, index), 0, dim);
  }
};
Slices slices_of(std::string_view op, const Tensor& x, int dim) {
  const int at = checked_dim(op, x, dim);
  PEAL_CHECK(x.numel() > 0, op, ": the slices along dimension ", dim, " of shape ", x.shape(),
             " have no elements, by which they could differ");
  const std::int64_t n = x.size(at);
  const Tensor slices = movedim(x.detach(), at, 0);
  return {slices, slices.detach({n, x.numel() / n}), at};
}
// Along a dimension that has no index.
Unique of_no_slices(const Tensor& x) {
  const Tensor none = Tensor::empty({0}, DType::i64, x.device());
  return {x.detach().clone(), none, none.clone()};
}

// Of each element of x [n, m] the how-manieth of its column's values it is.
Tensor ranks_in_columns(const Tensor& x) {
  const Extreme sorted = sort(x, 0);
  const Tensor none = Tensor::zeros({1, x.size(1)}, DType::i64, x.device());
  const Tensor rank = cumsum(cat({none, cast(differing(sorted.values), DType::i64)}), 0);
  return scatter(Tensor::empty(x.shape(), DType::i64, x.device()), 0, sorted.indices, rank);
}

// Of each row of x [n, m] the how-manieth it is in the order of words. Neighbouring columns become
// one, of the ranks of their pairs, until one is left.
Tensor ranks_by_words(const Tensor& x) {
  const std::int64_t n = x.size(0);
  Tensor rank = ranks_in_columns(x);
  while (rank.size(1) > 1) {
    const std::int64_t m = rank.size(1), even = m / 2 * 2;
    Tensor pairs = slice(rank, 1, 0, even, 2) * n + slice(rank, 1, 1, even, 2);
    if (even < m) pairs = cat({pairs, slice(rank, 1, even, m)}, 1);
    rank = ranks_in_columns(pairs);
  }
  return rank.detach({n});
}

}  // namespace

Unique unique(const Tensor& x) {
  const OpName name("unique");
  TraceSpan span("unique");
  if (x.numel() == 0) return of_none(x);
  const Extreme sorted = sort(x.detach({x.numel()}));
  const Runs runs = runs_of(differing(sorted.values));
  return {masked_select(sorted.values, runs.begins),
          scatter(Tensor::empty({x.numel()}, DType::i64, x.device()), 0, sorted.indices, runs.run)
              .detach(x.shape()),
          runs.counts};
}

Unique unique(const Tensor& x, int dim) {
  const OpName name("unique");
  TraceSpan span("unique");
  if (x.size(checked_dim("unique", x, dim)) == 0) return of_no_slices(x);
  const Slices all = slices_of("unique", x, dim);
  const Unique order = unique(ranks_by_words(all.rows));
  // Of equal ones the first, as the last that is written stays.
  const std::int64_t n = order.inverse.numel();
  const Tensor backwards = n - 1 - arange(n, DType::i64, x.device());
  const Tensor first = scatter(Tensor::empty(order.values.shape(), DType::i64, x.device()), 0,
                               flip(order.inverse, 0), backwards);
  return {all.chosen(first), order.inverse, order.counts};
}

Unique unique_consecutive(const Tensor& x) {
  const OpName name("unique_consecutive");
  TraceSpan span("unique_consecutive");
  if (x.numel() == 0) return of_none(x);
  const Tensor line = x.detach({x.numel()});
  const Runs runs = runs_of(differing(line));
  return {masked_select(line, runs.begins), runs.run.detach(x.shape()), runs.counts};
}

Unique unique_consecutive(const Tensor& x, int dim) {
  const OpName name("unique_consecutive");
  TraceSpan span("unique_consecutive");
  if (x.size(checked_dim("unique_consecutive", x, dim)) == 0) return of_no_slices(x);
  const Slices all = slices_of("unique_consecutive", x, dim);
  const Runs runs = runs_of(any(differing(all.rows), 1));
  return {all.chosen(nonzero(runs.begins).detach({runs.counts.numel()})), runs.run, runs.counts};
}

Tensor bincount(const Tensor& x, const Tensor& weights, std::int64_t minlength) {
  const OpName name("bincount");
  TraceSpan span("bincount");
  PEAL_CHECK(x.dim() == 1 && !is_floating(x.dtype()) && x.dtype() != DType::boolean,
             "bincount: expected integers [n], got ", x.dtype(), " ", x.shape());
  PEAL_CHECK(minlength >= 0, "bincount: a length must not be negative, got ", minlength);
  PEAL_CHECK(!weights.defined() || weights.shape() == x.shape(), "bincount: expected weights ",
             x.shape(), ", got ", weights.defined() ? weights.shape() : Shape{});
  const Tensor place = cast(x, DType::i64);
  std::int64_t count = minlength;
  if (x.numel() > 0) {
    PEAL_CHECK(min(place).item<std::int64_t>() >= 0, "bincount: ", min(place).item<std::int64_t>(),
               " is negative");
    count = std::max(count, max(place).item<std::int64_t>() + 1);
  }
  if (!weights.defined()) return counted(count, place);
  const DType dtype = weights.dtype() == DType::f32 ? DType::f32 : DType::f64;
  return scatter_add(Tensor::zeros({count}, dtype, x.device()), 0, place,
                     cast(weights.detach(), dtype));
}

Tensor histc(const Tensor& x, std::int64_t bins, double low, double high) {
  const OpName name("histc");
  TraceSpan span("histc");
  check_floating("histc", x);
  PEAL_CHECK(bins >= 1 && low <= high, "histc: expected at least 1 bin and low <= high, got ", bins,
             " and [", low, ", ", high, "]");
  const Tensor flat = cast(x.detach({x.numel()}), DType::f64);
  if (low == high && x.numel() > 0) {
    low = min(flat).item<double>();
    high = max(flat).item<double>();
  }
  if (low == high) {
    low -= 1;
    high += 1;
  }
  PEAL_CHECK(high - low < INFINITY, "histc: the range [", low, ", ", high, "] is not finite");
  const Tensor inside = ge(flat, low) & le(flat, high);
  const Tensor scaled =
      (where(inside, flat, low) - low) * (static_cast<double>(bins) / (high - low));
  const Tensor bin = clamp(cast(scaled, DType::i64), 0, static_cast<double>(bins - 1));
  return cast(counted(bins + 1, where(inside, bin, bins)).rows(0, bins), x.dtype());
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right) {
  const OpName name("searchsorted");
  TraceSpan span("searchsorted");
  const auto [line, x] = alike("searchsorted", sorted.detach(), values.detach());
  const bool one = line.dim() == 1;
  bool fits = line.dim() >= 1 && (one || line.dim() == x.dim());
  for (int i = 0; fits && !one && i < line.dim() - 1; ++i) fits = line.size(i) == x.size(i);
  PEAL_CHECK(fits, "searchsorted: sorted lines of shape ", line.shape(),
             " do not fit values of shape ", x.shape(),
             ": expected [n], or the same sizes but for the last");
  const Tensor out = Tensor::empty(x.shape(), DType::i64, x.device());
  if (x.numel() == 0) return out;
  const std::int64_t n = one ? x.numel() : x.size(-1), rows = x.numel() / n, size = line.size(-1);
  kernels(x.device())
      .search("searchsorted", x, out.detach({rows, n}), one ? line : line.detach({rows, size}),
              x.detach({rows, n}), right);
  return out;
}

Tensor searchsorted(const Tensor& sorted, Scalar value, bool right) {
  const OpName name("searchsorted");
  return searchsorted(sorted, number("searchsorted", value, sorted.dtype(), sorted.device()),
                      right);
}

Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right) {
  return searchsorted(boundaries, x, right);
}

Tensor isin(const Tensor& elements, const Tensor& tests, bool invert) {
  const OpName name("isin");
  TraceSpan span("isin");
  PEAL_CHECK(elements.device() == tests.device(), "isin: both operands must be on one device, got ",
             elements.device(), " and ", tests.device());
  const std::int64_t n = tests.numel();
  if (n == 0) return full(elements.shape(), invert, DType::boolean, elements.device());
  const DType dtype = promote_types(elements.dtype(), tests.dtype());
  const Tensor x = cast(elements.detach(), dtype);
  const Tensor line = sort(cast(tests.detach(), dtype).reshape({n})).values;
  const Tensor at = clamp(searchsorted(line, x), 0, static_cast<double>(n - 1));
  const Tensor near = take(line, at);
  return invert ? ne(x, near) : eq(x, near);
}
Tensor isin(const Tensor& elements, Scalar test, bool invert) {
  const OpName name("isin");
  return invert ? ne(elements, test) : eq(elements, test);
}
Tensor isin(Scalar element, const Tensor& tests, bool invert) {
  const OpName name("isin");
  const Tensor found = any(eq(tests, element));
  return invert ? logical_not(found) : found;
}

}  // namespace peal
