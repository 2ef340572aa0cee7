// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

namespace peal {

Tensor reshaped(const Tensor& x, const Shape& shape) {
  return record("reshape", x.detach(shape), {x},
                [before = x.shape()](const Tensor& g) { return reshaped(g, before); });
}

Tensor view_as(const Tensor& x, const Tensor& other) {
  TraceSpan span("view_as");
  PEAL_CHECK(x.numel() == other.numel(), "view_as: shape ", x.shape(), " has ", x.numel(),
             " elements, shape ", other.shape(), " has ", other.numel());
  return reshaped(x, other.shape());
}

Tensor reshape(const Tensor& x, const std::vector<std::int64_t>& shape) {
  TraceSpan span("reshape");
  std::int64_t known = 1, unknown = 0;
  for (std::int64_t size : shape) {
    PEAL_CHECK(size >= -1, "reshape: a size must be positive, 0, or -1 once, got ", size);
    size == -1 ? ++unknown : known *= size;
  }
  PEAL_CHECK(unknown <= 1, "reshape: at most one size may be -1, got ", unknown);
  PEAL_CHECK(unknown == 0 || known != 0, "reshape: -1 cannot be worked out beside a size of 0");
  Shape wanted;
  for (std::int64_t size : shape) wanted.push_back(size == -1 ? x.numel() / known : size);
  PEAL_CHECK(wanted.numel() == x.numel(), "reshape: shape ", x.shape(), " has ", x.numel(),
             " elements, shape ", wanted, unknown ? " (-1 worked out)" : "", " has ",
             wanted.numel());
  return reshaped(x, wanted);
}

Tensor flatten(const Tensor& x, int start_dim) {
  const OpName op("flatten");
  const int start = start_dim < 0 ? start_dim + x.dim() : start_dim;
  PEAL_CHECK(start >= 0 && (start < x.dim() || x.dim() == 0), "flatten: dimension ", start_dim,
             " of shape ", x.shape());
  std::vector<std::int64_t> shape(x.shape().begin(), x.shape().begin() + start);
  std::int64_t rest = 1;
  for (int i = start; i < x.dim(); ++i) rest *= x.size(i);
  shape.push_back(rest);
  return reshape(x, shape);
}

Tensor unsqueeze(const Tensor& x, int dim) {
  const OpName op("unsqueeze");
  const int at = dim < 0 ? dim + x.dim() + 1 : dim;
  PEAL_CHECK(at >= 0 && at <= x.dim(), "unsqueeze: dimension ", dim, " of shape ", x.shape());
  std::vector<std::int64_t> shape(x.shape().begin(), x.shape().end());
  shape.insert(shape.begin() + at, 1);
  return reshape(x, shape);
}

Tensor squeeze(const Tensor& x, int dim) {
  const OpName op("squeeze");
  const int at = checked_dim("squeeze", x, dim);
  PEAL_CHECK(x.size(at) == 1, "squeeze: dimension ", dim, " of shape ", x.shape(), " is not 1");
  std::vector<std::int64_t> shape(x.shape().begin(), x.shape().end());
  shape.erase(shape.begin() + at);
  return reshape(x, shape);
}

}  // namespace peal
