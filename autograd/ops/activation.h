// SPDX-License-Identifier: Apache-2.0
// Activations, element by element.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>

namespace peal {

// max(x, 0); the gradient at 0 is 0, as in PyTorch. NaN passes through.
Tensor relu(const Tensor& x);
// The same, over x's own elements where nobody else can see them: relu(conv2d(...)) needs no second
// array.
Tensor relu(Tensor&& x);

Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);

// x times the normal distribution at x; by tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
// (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016).
enum class GeluApproximation : std::uint8_t { none, tanh };
Tensor gelu(const Tensor& x, GeluApproximation approximation = GeluApproximation::none);

}  // namespace peal
