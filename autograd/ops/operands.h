// SPDX-License-Identifier: Apache-2.0
// Operands as kernels take them: of one type (promotion.h), and numbers that the type holds. For
// ops; what they check beside that is in check.h. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <string_view>
#include <utility>

namespace peal {

// Both in the type that they are computed in. Error where they are on two devices.
std::pair<Tensor, Tensor> alike(std::string_view op, const Tensor& a, const Tensor& b);
// The number as a 0-dim tensor. Error where an integer type does not hold it.
Tensor number(std::string_view op, Scalar value, DType dtype, Device device);
// s beside x: an integer type's wraps, so that u8 - 1 is u8 + 255. Error where the type does not
// hold it.
double checked_number(std::string_view op, const Tensor& x, double s);

}  // namespace peal
