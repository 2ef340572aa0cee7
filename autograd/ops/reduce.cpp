// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

std::uint32_t mask_of_dims(std::string_view op, const Tensor& x, const std::vector<int>& dims) {
  std::uint32_t mask = 0;
  for (int dim : dims) {
    const int at = dim < 0 ? dim + x.dim() : dim;
    PEAL_CHECK(at >= 0 && at < x.dim(), op, ": dimension ", dim, " of shape ", x.shape());
    PEAL_CHECK(((mask >> at) & 1) == 0, op, ": dimension ", dim, " of shape ", x.shape(),
               " is named twice");
    mask |= 1u << at;
  }
  return mask;
}

// Backward stretches the gradient back over what was summed.
Tensor reduce(std::string_view op, const Tensor& x, std::uint32_t mask, bool keepdim,
              bool is_mean) {
  if (widens(x)) return reduce(op, widened(x), mask, keepdim, is_mean);
  TraceSpan span(op);
  Shape kept, result;
  std::int64_t reduced = 1;
  for (int i = 0; i < x.dim(); ++i) {
    const bool gone = (mask >> i) & 1;
    if (gone) reduced *= x.size(i);
    kept.push_back(gone ? 1 : x.size(i));
    if (!gone || keepdim) result.push_back(gone ? 1 : x.size(i));
  }
  if (is_mean) {
    PEAL_CHECK(is_floating(x.dtype()), op, ": expected a floating type, got ", x.dtype(), " ",
               x.shape(), "; take it of cast(x, DType::f32)");
    PEAL_CHECK(reduced > 0, op, ": no elements to average in shape ", x.shape());
  }
  const double scale = is_mean ? 1.0 / static_cast<double>(reduced) : 1.0;
  Tensor out = Tensor::empty(result, is_floating(x.dtype()) ? x.dtype() : DType::i64, x.device());
  kernels(x.device()).sum(op, x, out, x, mask, scale);
  return record(op, out, {x}, [kept, shape = x.shape(), scale](const Tensor& g) {
    return expand_to(reshaped(g, kept), shape, scale);
  });
}

std::uint32_t all_dims(const Tensor& x) { return (1u << x.dim()) - 1; }

}  // namespace

Tensor sum(const Tensor& x) {
  const OpName op("sum");
  return reduce("sum", x, all_dims(x), false, false);
}
Tensor mean(const Tensor& x) {
  const OpName op("mean");
  return reduce("mean", x, all_dims(x), false, true);
}
Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  const OpName op("sum");
  return reduce("sum", x, mask_of_dims("sum", x, dims), keepdim, false);
}
Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  const OpName op("mean");
  return reduce("mean", x, mask_of_dims("mean", x, dims), keepdim, true);
}

namespace {

// The gradient of a running sum is the running sum from the other end.
Tensor scan(const Tensor& x, int dim, bool reversed) {
  TraceSpan span("cumsum");
  const Tensor out = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).cumsum("cumsum", x, out, x, dim, reversed);
  return record("cumsum", out, {x},
                [dim, reversed](const Tensor& g) { return scan(g, dim, !reversed); });
}

}  // namespace

Tensor cumsum(const Tensor& x, int dim) {
  const OpName op("cumsum");
  if (widens(x)) return cumsum(widened(x), dim);
  return scan(is_floating(x.dtype()) ? x : cast(x, DType::i64), checked_dim("cumsum", x, dim),
              false);
}

namespace {

using Place = Kernel<bool(const Tensor&, const Tensor&, int)> Kernels::*;

Tensor place_of(std::string_view op, Place kernel, const Tensor& x, int dim, bool keepdim) {
  TraceSpan span(op);
  const int at = checked_dim(op, x, dim);
  PEAL_CHECK(x.size(at) > 0, op, ": no elements along dimension ", dim, " of shape ", x.shape());
  Shape shape;
  for (int i = 0; i < x.dim(); ++i) {
    if (i != at || keepdim) shape.push_back(i == at ? 1 : x.size(i));
  }
  Tensor out = Tensor::empty(shape, DType::i64, x.device());
  (kernels(x.device()).*kernel)(op, x, out, x, at);
  return out;
}

Extreme extreme(std::string_view op, Place kernel, const Tensor& x, int dim, bool keepdim) {
  const Tensor indices = place_of(op, kernel, x, dim, true);
  const Tensor values = gather(x, dim, indices);
  if (keepdim) return {values, indices};
  return {squeeze(values, dim), squeeze(indices, dim)};
}

}  // namespace

Tensor argmax(const Tensor& x, int dim) {
  return place_of("argmax", &Kernels::argmax, x, dim, false);
}
Tensor argmin(const Tensor& x, int dim) {
  return place_of("argmin", &Kernels::argmin, x, dim, false);
}
Extreme max(const Tensor& x, int dim, bool keepdim) {
  return extreme("max", &Kernels::argmax, x, dim, keepdim);
}
Extreme min(const Tensor& x, int dim, bool keepdim) {
  return extreme("min", &Kernels::argmin, x, dim, keepdim);
}
Tensor max(const Tensor& x) { return max(flatten(x), 0).values; }
Tensor min(const Tensor& x) { return min(flatten(x), 0).values; }

}  // namespace peal
