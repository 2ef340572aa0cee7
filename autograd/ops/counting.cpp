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

// Runs of equal elements of x [n], n > 0: values, which run each is of, lengths.
Unique runs_of(const Tensor& x) {
  const std::int64_t n = x.numel();
  const Tensor differs = ne(x.rows(1, n), x.rows(0, n - 1));
  const Tensor begins = cat({full({1}, 1, DType::boolean, x.device()), differs});
  const Tensor run = cumsum(cast(begins, DType::i64), 0) - 1;
  const std::int64_t count = run.rows(n - 1, n).item<std::int64_t>() + 1;
  return {masked_select(x, begins), run, counted(count, run)};
}

Unique of_none(const Tensor& x) {
  const Tensor none = Tensor::empty({0}, DType::i64, x.device());
  return {Tensor::empty({0}, x.dtype(), x.device()), none.detach(x.shape()), none};
}

}  // namespace

Unique unique(const Tensor& x) {
  const OpName name("unique");
  TraceSpan span("unique");
  if (x.numel() == 0) return of_none(x);
  const Extreme sorted = sort(x.detach({x.numel()}));
  const Unique runs = runs_of(sorted.values);
  return {
      runs.values,
      scatter(Tensor::empty({x.numel()}, DType::i64, x.device()), 0, sorted.indices, runs.inverse)
          .detach(x.shape()),
      runs.counts};
}

Unique unique_consecutive(const Tensor& x) {
  const OpName name("unique_consecutive");
  TraceSpan span("unique_consecutive");
  if (x.numel() == 0) return of_none(x);
  const Unique runs = runs_of(x.detach({x.numel()}));
  return {runs.values, runs.inverse.detach(x.shape()), runs.counts};
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

}  // namespace peal
