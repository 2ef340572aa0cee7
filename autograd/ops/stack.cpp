// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/stack.h>

#include <algorithm>

namespace peal {
namespace {

Tensor joined_as(const Tensors& tensors, Tensor (*form)(const Tensor&), int dim) {
  Tensors all;
  for (const Tensor& tensor : tensors) all.push_back(form(tensor));
  return cat(all, dim);
}

}  // namespace

Tensor hstack(const Tensors& tensors) {
  const OpName name("hstack");
  PEAL_CHECK(!tensors.empty(), "hstack: there are no tensors");
  return joined_as(tensors, atleast_1d, tensors[0].dim() <= 1 ? 0 : 1);
}
Tensor vstack(const Tensors& tensors) {
  const OpName name("vstack");
  return joined_as(tensors, atleast_2d, 0);
}
Tensor dstack(const Tensors& tensors) {
  const OpName name("dstack");
  return joined_as(tensors, atleast_3d, 2);
}
Tensor column_stack(const Tensors& tensors) {
  const OpName name("column_stack");
  const auto columns = [](const Tensor& x) {
    return x.dim() >= 2 ? x : reshape(x, {x.numel(), 1});
  };
  return joined_as(tensors, columns, 1);
}

Parts chunk(const Tensor& x, std::int64_t chunks, int dim) {
  const OpName name("chunk");
  PEAL_CHECK(chunks >= 1, "chunk: expected at least 1 part, got ", chunks);
  const std::int64_t size = x.size(checked_dim("chunk", x, dim));
  if (size == 0) return split(x, std::vector<std::int64_t>(static_cast<std::size_t>(chunks)), dim);
  return split(x, (size + chunks - 1) / chunks, dim);
}

Parts tensor_split(const Tensor& x, std::int64_t sections, int dim) {
  const OpName name("tensor_split");
  PEAL_CHECK(sections >= 1, "tensor_split: expected at least 1 part, got ", sections);
  const std::int64_t size = x.size(checked_dim("tensor_split", x, dim));
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < sections; ++i) {
    sizes.push_back(size / sections + (i < size % sections ? 1 : 0));
  }
  return split(x, sizes, dim);
}

Parts tensor_split(const Tensor& x, const std::vector<std::int64_t>& places, int dim) {
  const OpName name("tensor_split");
  const std::int64_t size = x.size(checked_dim("tensor_split", x, dim));
  // As slices between the places, which may overlap or be empty.
  Tensors parts;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i <= places.size(); ++i) {
    const std::int64_t wanted = i < places.size() ? places[i] : size;
    const std::int64_t end = std::clamp<std::int64_t>(wanted < 0 ? wanted + size : wanted, 0, size);
    parts.push_back(narrow(x, dim, begin, std::max<std::int64_t>(0, end - begin)));
    begin = end;
  }
  return parts;
}

Parts unbind(const Tensor& x, int dim) {
  const OpName name("unbind");
  const int at = checked_dim("unbind", x, dim);
  Parts parts = split(x, std::vector<std::int64_t>(static_cast<std::size_t>(x.size(at)), 1), at);
  for (Tensor& part : parts) part = squeeze(part, at);
  return parts;
}

}  // namespace peal
