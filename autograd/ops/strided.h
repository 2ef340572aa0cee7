// SPDX-License-Identifier: Apache-2.0
// How a dense array is walked and seen, for ops that copy parts of one or work on flat ones.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/table.h>

namespace peal {

// The step from one index to the next in each dimension.
inline Steps steps_of_dense(const Shape& shape) {
  Steps steps{};
  std::int64_t step = 1;
  for (int i = shape.dim() - 1; i >= 0; --i) {
    steps[static_cast<std::size_t>(i)] = step;
    step *= shape[i];
  }
  return steps;
}

// The elements of x at `at`, `at` + steps, ..., of this shape: x's own where they lie in one piece,
// else a copy. Recorded (permute.cpp).
Tensor part_of(std::string_view op, const Tensor& x, const Shape& shape, const Steps& steps,
               std::int64_t at);

// Whether elements of this shape, at these steps, lie side by side.
bool in_one_piece(const Shape& shape, const Steps& steps);
// Zeros, but for g's elements at `at`, `at` + steps, ... Recorded (permute.cpp).
Tensor zeros_but(std::string_view op, const Tensor& g, const Shape& whole, const Steps& steps,
                 std::int64_t at);
// x with these values there instead. Recorded (permute.cpp).
Tensor with_part(std::string_view op, const Tensor& x, const Tensor& values, const Steps& steps,
                 std::int64_t at);

// `part`, which PyTorch gives as one that shares x's elements, and which a caller may mean to write
// so: where it is a copy that is an Error while x lives (core/in_place.h).
inline Tensor part_for_caller(Tensor part, const Tensor& x) {
  if (part.storage() != x.storage()) part.storage()->mark_copy_of(x.storage());
  return part;
}
// x, a copy that an operation gives as a result of its own: who writes it means that, and no other
// tensor, though that one may live, as what was kept for backward does.
inline Tensor as_result(Tensor x) {
  x.storage()->mark_own();
  return x;
}

// How a dense array is read to fill this shape, which it broadcasts to: 0 where it is stretched.
inline Steps steps_of_stretched(const Shape& from, const Shape& to) {
  const Steps dense = steps_of_dense(from);
  Steps steps{};
  for (int i = 1; i <= from.dim(); ++i) {
    if (from[-i] == 1) continue;
    steps[static_cast<std::size_t>(to.dim() - i)] = dense[static_cast<std::size_t>(from.dim() - i)];
  }
  return steps;
}
// x stretched to a shape that it broadcasts to, of any type; x itself where it has that. Recorded
// (expand.cpp).
Tensor stretched_to(std::string_view op, const Tensor& x, const Shape& shape);

// x's elements in another shape of as many, recorded as reshape() is (shape.cpp).
Tensor reshaped(const Tensor& x, const Shape& shape);

}  // namespace peal
