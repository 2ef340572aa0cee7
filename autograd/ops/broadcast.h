// SPDX-License-Identifier: Apache-2.0
// NumPy's broadcasting: sizes of 1 stretch, missing leading dimensions are 1.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <string_view>

namespace peal {

// The shape that both stretch to; Error that names op and shapes where there is none.
Shape broadcast(std::string_view op, const Shape& a, const Shape& b);

// Sums g over the dimensions along which an operand of this shape was stretched. Recorded.
Tensor sum_to(const Tensor& g, const Shape& shape);
// The opposite: x stretched to the shape, times a number. Recorded.
Tensor expand_to(const Tensor& x, const Shape& shape, double scale = 1);

}  // namespace peal
