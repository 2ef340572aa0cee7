// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/indices.h>
#include <peal/autograd/ops/order.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/rearrange.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

namespace peal {
namespace {

// The first k along dim.
Extreme first_in_order(std::string_view op, const Tensor& x, std::int64_t k, int dim,
                       bool descending) {
  TraceSpan span(op);
  const OpName name(op);
  if (x.dim() == 0) {
    const Extreme one = first_in_order(op, reshape(x, {1}), k, dim, descending);
    return {reshape(one.values, {}), reshape(one.indices, {})};
  }
  const int at = checked_dim(op, x, dim);
  const std::int64_t size = x.size(at);
  PEAL_CHECK(k >= 0 && k <= size, op, ": ", k, " of ", size, " elements along dimension ", dim,
             " of shape ", x.shape());
  const Tensor lines = at == x.dim() - 1 ? x.detach() : movedim(x.detach(), at, -1);
  Shape shape = lines.shape();
  shape[-1] = k;
  const Tensor values = Tensor::empty(shape, x.dtype(), x.device()),
               indices = Tensor::empty(shape, DType::i64, x.device());
  const std::int64_t rows = size == 0 ? 0 : x.numel() / size;
  kernels(x.device())
      .sort(op, x, values.detach({rows, k}), indices.detach({rows, k}), lines.detach({rows, size}),
            descending);
  const auto back = [&](const Tensor& y) {
    return at == x.dim() - 1 ? y : as_result(movedim(y, -1, at));
  };
  const Tensor places = back(indices);
  return {wants_grad({&x, 1}) ? gathered(x, at, places) : back(values), places};
}

}  // namespace

Extreme sort(const Tensor& x, int dim, bool descending) {
  return first_in_order("sort", x, x.dim() == 0 ? 1 : x.size(checked_dim("sort", x, dim)), dim,
                        descending);
}

Tensor argsort(const Tensor& x, int dim, bool descending) {
  return sort(x.detach(), dim, descending).indices;
}

Tensor msort(const Tensor& x) { return sort(x, 0).values; }

Extreme topk(const Tensor& x, std::int64_t k, int dim, bool largest) {
  return first_in_order("topk", x, k, dim, largest);
}

Extreme kthvalue(const Tensor& x, std::int64_t k, int dim, bool keepdim) {
  const OpName name("kthvalue");
  PEAL_CHECK(k >= 1, "kthvalue: the smallest is number 1, got ", k);
  if (x.dim() == 0) return first_in_order("kthvalue", x, k, dim, false);
  const int at = checked_dim("kthvalue", x, dim);
  const Extreme first = first_in_order("kthvalue", x, k, at, false);
  const Tensor values = as_result(narrow(first.values, at, k - 1, 1)),
               indices = as_result(narrow(first.indices, at, k - 1, 1));
  if (keepdim) return {values, indices};
  return {squeeze(values, at), squeeze(indices, at)};
}

}  // namespace peal
