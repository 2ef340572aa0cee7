// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/nearness.h>
#include <peal/autograd/ops/over_dims.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

Tensor extreme_over(std::string_view op, Reduce which, const Tensor& x, const OverDims& over) {
  TraceSpan span(op);
  PEAL_CHECK(over.reduced > 0, op, ": no elements to choose from in shape ", x.shape());
  const Tensor y = Tensor::empty(over.result, x.dtype(), x.device());
  kernels(x.device()).reduce(op, x, which, y, x, over.mask);
  return record(op, y, {x}, [op, x = save(x), y = save(y), over](const Tensor& g) {
    const Tensor largest = reshaped(y(), over.kept);
    const Tensor same = eq(x(), largest);
    // A NaN, which equals nothing, is the result of those that it is among.
    const Tensor equal =
        cast(is_floating(g.dtype()) ? same | (isnan(x()) & isnan(largest)) : same, g.dtype());
    const Tensor count = sum_over(op, equal, OverDims(equal.shape(), over.mask, true));
    return reshaped(g, over.kept) * (equal / count);
  });
}

using Place = Kernel<bool(const Tensor&, const Tensor&, int)> Kernels::*;

Tensor place_of(std::string_view op, Place kernel, const Tensor& x, int dim, bool keepdim) {
  TraceSpan span(op);
  const int at = checked_dim(op, x, dim);
  PEAL_CHECK(x.size(at) > 0, op, ": no elements along dimension ", dim, " of shape ", x.shape());
  const OverDims over(x.shape(), 1u << at, keepdim);
  Tensor out = Tensor::empty(over.result, DType::i64, x.device());
  (kernels(x.device()).*kernel)(op, x, out, x, at);
  return out;
}
Tensor place_of(std::string_view op, Place kernel, const Tensor& x) {
  const OpName name(op);
  PEAL_CHECK(x.numel() > 0, op, ": no elements in shape ", x.shape());
  return place_of(op, kernel, flatten(x), 0, false);
}

Extreme extreme(std::string_view op, Place kernel, const Tensor& x, int dim, bool keepdim) {
  const Tensor indices = place_of(op, kernel, x, dim, true);
  const Tensor values = gather(x, dim, indices);
  if (keepdim) return {values, indices};
  return {squeeze(values, dim), squeeze(indices, dim)};
}

}  // namespace

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpName op("amax");
  return extreme_over("amax", Reduce::amax, x, OverDims("amax", x, dims, keepdim));
}
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpName op("amin");
  return extreme_over("amin", Reduce::amin, x, OverDims("amin", x, dims, keepdim));
}
Tensor amax(const Tensor& x) {
  const OpName op("amax");
  return extreme_over("amax", Reduce::amax, x, OverDims(x));
}
Tensor amin(const Tensor& x) {
  const OpName op("amin");
  return extreme_over("amin", Reduce::amin, x, OverDims(x));
}
Tensor max(const Tensor& x) {
  const OpName op("max");
  return extreme_over("max", Reduce::amax, x, OverDims(x));
}
Tensor min(const Tensor& x) {
  const OpName op("min");
  return extreme_over("min", Reduce::amin, x, OverDims(x));
}

Tensor argmax(const Tensor& x) { return place_of("argmax", &Kernels::argmax, x); }
Tensor argmin(const Tensor& x) { return place_of("argmin", &Kernels::argmin, x); }
Tensor argmax(const Tensor& x, int dim, bool keepdim) {
  return place_of("argmax", &Kernels::argmax, x, dim, keepdim);
}
Tensor argmin(const Tensor& x, int dim, bool keepdim) {
  return place_of("argmin", &Kernels::argmin, x, dim, keepdim);
}
Extreme max(const Tensor& x, int dim, bool keepdim) {
  return extreme("max", &Kernels::argmax, x, dim, keepdim);
}
Extreme min(const Tensor& x, int dim, bool keepdim) {
  return extreme("min", &Kernels::argmin, x, dim, keepdim);
}

MinMax aminmax(const Tensor& x) { return {amin(x), amax(x)}; }
MinMax aminmax(const Tensor& x, int dim, bool keepdim) {
  return {amin(x, dim, keepdim), amax(x, dim, keepdim)};
}

}  // namespace peal
