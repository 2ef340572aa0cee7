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

// x's elements in another shape of as many, recorded as reshape() is (shape.cpp).
Tensor reshaped(const Tensor& x, const Shape& shape);

}  // namespace peal
