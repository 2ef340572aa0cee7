// SPDX-License-Identifier: Apache-2.0
// Functions of one element, for floating types; outside a function's domain the result is NaN or
// infinite, as in PyTorch. abs, clamp (to bounds that are integers or infinite) and pow (by whole
// exponents from 0 to 64; by a fraction the result is f32) take integers as well.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <limits>

namespace peal {

Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor abs(const Tensor& x);  // the gradient at 0 is 0
Tensor pow(const Tensor& x, double exponent);
// min(max(x, low), high); where low > high all become high. The gradient passes within the bounds,
// which are included.
Tensor clamp(const Tensor& x, double low, double high = std::numeric_limits<double>::infinity());

}  // namespace peal
