// SPDX-License-Identifier: Apache-2.0
// Joining tensors and taking them apart along a dimension.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace peal {

// One after the other along dim; all other sizes are equal. At least one tensor; of several types
// the result has the one that holds all (promotion.h).
Tensor cat(const Tensors& tensors, int dim = 0);
// Side by side along a new dimension, which is `dim` of the result; all shapes are equal.
Tensor stack(const Tensors& tensors, int dim = 0);

// What split() gives: a list of copies, each a temporary as long as the list is one, so writing
// into split(x, 1)[0] is an Error like writing into another copy that nobody holds (in_place.h).
class Parts : public Tensors {
 public:
  Parts(Tensors parts) : Tensors(std::move(parts)) {}  // NOLINT: a conversion

  const Tensor& operator[](std::size_t i) const& { return Tensors::operator[](i); }
  Tensor& operator[](std::size_t i) & { return Tensors::operator[](i); }
  Tensor operator[](std::size_t i) && { return std::move(Tensors::operator[](i)); }
  const Tensor& at(std::size_t i) const& { return Tensors::at(i); }
  Tensor& at(std::size_t i) & { return Tensors::at(i); }
  Tensor at(std::size_t i) && { return std::move(Tensors::at(i)); }
  const Tensor& front() const& { return Tensors::front(); }
  Tensor& front() & { return Tensors::front(); }
  Tensor front() && { return std::move(Tensors::front()); }
  const Tensor& back() const& { return Tensors::back(); }
  Tensor& back() & { return Tensors::back(); }
  Tensor back() && { return std::move(Tensors::back()); }
};

// Parts of these sizes, which add up to dim's; or all of one size, the last of what remains.
Parts split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim = 0);
Parts split(const Tensor& x, std::int64_t size, int dim = 0);

}  // namespace peal
