// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <fmt/format.h>

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
             " elements, shape [", fmt::format("{}", fmt::join(shape, ", ")), "] has ",
             unknown ? "a multiple of " : "", known);
  return reshaped(x, wanted);
}

Tensor flatten(const Tensor& x, int start_dim, int end_dim) {
  const OpName op("flatten");
  if (x.dim() == 0) return reshaped(x, {1});
  const int start = checked_dim("flatten", x, start_dim), end = checked_dim("flatten", x, end_dim);
  PEAL_CHECK(start <= end, "flatten: dimension ", start_dim, " comes after ", end_dim, " in shape ",
             x.shape());
  Shape shape;
  std::int64_t one = 1;
  for (int i = 0; i < x.dim(); ++i) {
    if (i >= start) one *= x.size(i);
    if (i < start || i >= end) shape.push_back(i == end ? one : x.size(i));
  }
  return reshaped(x, shape);
}

Tensor unflatten(const Tensor& x, int dim, const std::vector<std::int64_t>& sizes) {
  const OpName op("unflatten");
  const int at = checked_dim("unflatten", x, dim);
  std::int64_t known = 1, unknown = 0;
  for (const std::int64_t size : sizes) size == -1 ? ++unknown : known *= size;
  const bool fits =
      unknown == 0 ? known == x.size(at) : unknown == 1 && known > 0 && x.size(at) % known == 0;
  PEAL_CHECK(!sizes.empty() && fits, "unflatten: dimension ", dim, " of shape ", x.shape(),
             " is not the product of the sizes, which is ", known, ", with ", unknown,
             " to be worked out");
  Shape shape;
  for (int i = 0; i < x.dim(); ++i) {
    if (i != at) {
      shape.push_back(x.size(i));
      continue;
    }
    for (const std::int64_t size : sizes) shape.push_back(size == -1 ? x.size(at) / known : size);
  }
  return reshaped(x, shape);
}

Tensor unsqueeze(const Tensor& x, int dim) {
  const OpName op("unsqueeze");
  const int at = dim < 0 ? dim + x.dim() + 1 : dim;
  PEAL_CHECK(at >= 0 && at <= x.dim(), "unsqueeze: dimension ", dim, " of shape ", x.shape());
  std::vector<std::int64_t> shape(x.shape().begin(), x.shape().end());
  shape.insert(shape.begin() + at, 1);
  return reshape(x, shape);
}

namespace {

Tensor squeezed(const Tensor& x, std::uint32_t dims) {
  Shape shape;
  for (int i = 0; i < x.dim(); ++i) {
    if (x.size(i) != 1 || !((dims >> i) & 1)) shape.push_back(x.size(i));
  }
  return reshaped(x, shape);
}

}  // namespace

Tensor squeeze(const Tensor& x) {
  const OpName op("squeeze");
  return squeezed(x, ~std::uint32_t{0});
}

Tensor squeeze(const Tensor& x, const std::vector<int>& dims) {
  const OpName op("squeeze");
  std::uint32_t mask = 0;
  for (const int dim : dims) mask |= 1u << checked_dim("squeeze", x, dim);
  return squeezed(x, mask);
}

Tensor squeeze(const Tensor& x, int dim) {
  const OpName op("squeeze");
  return squeezed(x, 1u << checked_dim("squeeze", x, dim));
}

Tensor atleast_1d(const Tensor& x) { return x.dim() >= 1 ? x : reshaped(x, {1}); }
Tensor atleast_2d(const Tensor& x) { return x.dim() >= 2 ? x : reshaped(x, {1, x.numel()}); }
Tensor atleast_3d(const Tensor& x) {
  if (x.dim() >= 3) return x;
  return x.dim() == 2 ? unsqueeze(x, 2) : reshaped(x, {1, x.numel(), 1});
}

}  // namespace peal
