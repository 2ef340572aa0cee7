// SPDX-License-Identifier: Apache-2.0
// Repetition: along dimensions that a tensor lacks or of which it has one element, of the whole,
// and of each element. Tensors are dense, so the results are copies; arithmetic broadcasts without
// any.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <vector>

namespace peal {

// To these sizes: those of 1 stretch, and new dimensions come in front; -1 keeps a size.
Tensor expand(const Tensor& x, const std::vector<std::int64_t>& sizes);
Tensor expand_as(const Tensor& x, const Tensor& other);
Tensor broadcast_to(const Tensor& x, const std::vector<std::int64_t>& shape);
template <std::same_as<Shape> S>
Tensor broadcast_to(const Tensor& x, const S& shape) {
  return broadcast_to(x, std::vector<std::int64_t>(shape.begin(), shape.end()));
}
// To the shape that all of them broadcast to.
Tensors broadcast_tensors(const Tensors& tensors);

// The whole, so often along each dimension. There are at least as many numbers as dimensions: what
// is missing of the dimensions is 1. Of tile() what is missing of the numbers is 1 as well.
Tensor repeat(const Tensor& x, const std::vector<std::int64_t>& repeats);
Tensor tile(const Tensor& x, const std::vector<std::int64_t>& repeats);
// Each element so often in a row along dim, or of all in one row; `repeats` i64 [size]: each its
// own number, which the host reads.
Tensor repeat_interleave(const Tensor& x, std::int64_t repeats,
                         std::optional<int> dim = std::nullopt);
Tensor repeat_interleave(const Tensor& x, const Tensor& repeats,
                         std::optional<int> dim = std::nullopt);

// Of tensors [n], [m], ...: each as [n, m, ...], along its own dimension. indexing is "ij", or
// "xy", where the first two change places.
Tensors meshgrid(const Tensors& tensors, std::string_view indexing = "ij");

}  // namespace peal
