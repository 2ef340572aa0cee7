// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/order.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/quantile.h>
#include <peal/autograd/ops/rearrange.h>
#include <peal/autograd/ops/scan.h>
#include <peal/autograd/ops/scatter.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/tape.h>

#include <cmath>
#include <limits>

namespace peal {
namespace {

// What is at these places along dim, of size 1 there.
Extreme at_places(const Tensor& x, int dim, const Tensor& places, bool keepdim) {
  const Tensor values = gather(x, dim, places);
  if (keepdim) return {values, places};
  return {squeeze(values, dim), squeeze(places, dim)};
}

Tensor truths(const Tensor& mask, int dim) {
  return sum(cast(mask, DType::i64), std::vector<int>{dim}, true);
}

int dim_of_some(std::string_view op, const Tensor& x, int dim) {
  const int at = checked_dim(op, x, dim);
  PEAL_CHECK(x.size(at) > 0, op, ": no elements along dimension ", dim, " of shape ", x.shape());
  return at;
}

}  // namespace

Extreme median(const Tensor& x, int dim, bool keepdim) {
  const OpName name("median");
  const int at = dim_of_some("median", x, dim);
  const Tensor plain = x.detach();
  Tensor places = kthvalue(plain, (x.size(at) + 1) / 2, at, true).indices;
  if (is_floating(x.dtype())) {
    const Extreme nan = max(plain, at, true);  // where there is one
    places = where(ne(nan.values, nan.values), nan.indices, places);
  }
  return at_places(x, at, places, keepdim);
}

Extreme nanmedian(const Tensor& x, int dim, bool keepdim) {
  const OpName name("nanmedian");
  if (!is_floating(x.dtype())) return median(x, dim, keepdim);
  const int at = dim_of_some("nanmedian", x, dim);
  const Tensor plain = x.detach(), count = truths(eq(plain, plain), at);
  // In f64, as the half of an integer; of none it is 0, a NaN.
  const Tensor rank = cast(cast(count - 1, DType::f64) / 2, DType::i64);
  return at_places(x, at, gather(argsort(plain, at), at, rank), keepdim);
}

namespace {

// Of all, where those that equal it share its gradient.
Tensor of_all(std::string_view op, const Tensor& x, Extreme (*along)(const Tensor&, int, bool)) {
  const OpName name(op);
  const Tensor y = along(x.detach({x.numel()}), 0, false).values;
  return record(
      op, y, {x},
      [mask = eq(x.detach(), y) | (ne(x.detach(), x.detach()) & ne(y, y))](const Tensor& g) {
        const Tensor own = cast(mask, g.dtype());
        return own * (g / sum(own));
      });
}

}  // namespace

Tensor median(const Tensor& x) { return of_all("median", x, median); }
Tensor nanmedian(const Tensor& x) { return of_all("nanmedian", x, nanmedian); }

Extreme mode(const Tensor& x, int dim, bool keepdim) {
  const OpName name("mode");
  if (x.dim() == 0) {
    const Extreme one = mode(reshape(x, {1}), 0);
    return {one.values, one.indices};
  }
  const int at = dim_of_some("mode", x, dim);
  const Extreme sorted = sort(x.detach(), at);
  // Equal elements lie together; each run has a number, and the first of the longest is the mode.
  const std::int64_t n = x.size(at);
  Shape first = x.shape();
  first[at] = 1;
  const Tensor differs =
      ne(narrow(sorted.values, at, 1, n - 1), narrow(sorted.values, at, 0, n - 1));
  const Tensor run = cat(
      {Tensor::zeros(first, DType::i64, x.device()), cumsum(cast(differs, DType::i64), at)}, at);
  const Tensor none = Tensor::zeros(x.shape(), DType::i64, x.device());
  const Tensor length = scatter_add(none, at, run, none + 1);
  const Tensor longest = unsqueeze(argmax(length, at), at);
  const Tensor last = truths(le(run, longest), at) - 1;
  return at_places(x, at, gather(sorted.indices, at, last), keepdim);
}

namespace {

Tensor ranked(const Tensor& sorted, double q, Interpolation interpolation) {
  PEAL_CHECK(q >= 0 && q <= 1, "quantile: expected q in [0, 1], got ", q);
  const std::int64_t n = sorted.size(-1);
  const double rank = q * static_cast<double>(n - 1);
  double low = std::floor(rank), weight = rank - low;
  if (interpolation == Interpolation::nearest) low = std::nearbyint(rank);
  if (interpolation == Interpolation::higher) low = std::ceil(rank);
  if (interpolation == Interpolation::midpoint && weight > 0) weight = 0.5;
  const auto at = static_cast<std::int64_t>(low);
  const Tensor below = select(sorted, -1, at);
  const bool between =
      interpolation == Interpolation::linear || interpolation == Interpolation::midpoint;
  if (!between || weight == 0) return below;
  return below + (select(sorted, -1, at + 1) - below) * weight;
}

}  // namespace

Tensor quantile(const Tensor& x, const std::vector<double>& q, std::optional<int> dim, bool keepdim,
                Interpolation interpolation) {
  const OpName name("quantile");
  check_floating("quantile", x);
  const int at = dim ? dim_of_some("quantile", x, *dim) : 0;
  const Tensor lines = dim ? movedim(x, at, -1) : flatten(x);
  PEAL_CHECK(lines.size(-1) > 0, "quantile: no elements in shape ", x.shape());
  const Tensor sorted = sort(lines).values, largest = select(sorted.detach(), -1, -1);
  Tensors all;
  for (const double each : q) {
    const Tensor y = where(ne(largest, largest), std::numeric_limits<double>::quiet_NaN(),
                           ranked(sorted, each, interpolation));
    Shape kept = x.shape();
    if (keepdim && dim) kept[at] = 1;
    for (int i = 0; keepdim && !dim && i < kept.dim(); ++i) kept[i] = 1;
    all.push_back(keepdim ? reshape(y, kept) : y);
  }
  PEAL_CHECK(!all.empty(), "quantile: there are no q");
  return stack(all);
}

Tensor quantile(const Tensor& x, double q, std::optional<int> dim, bool keepdim,
                Interpolation interpolation) {
  return squeeze(quantile(x, std::vector<double>{q}, dim, keepdim, interpolation), 0);
}

}  // namespace peal
