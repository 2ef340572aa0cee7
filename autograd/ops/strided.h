// SPDX-License-Identifier: Apache-2.0
// How a dense array is walked, for ops that copy parts of one.
#pragma once

#include <peal/autograd/core/shape.h>
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

}  // namespace peal
