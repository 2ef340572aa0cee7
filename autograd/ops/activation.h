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

// Of integers too, as f32.
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);

// x times the normal distribution at x; by tanh: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
// (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016).
enum class GeluApproximation : std::uint8_t { none, tanh };
Tensor gelu(const Tensor& x, GeluApproximation approximation = GeluApproximation::none);

Tensor silu(const Tensor& x);  // x sigmoid(x)
Tensor mish(const Tensor& x);  // x tanh(softplus(x))
// log(1 + e^(beta x)) / beta, and x where beta x is above the threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);
Tensor logsigmoid(const Tensor& x);
// Above 0 x; else alpha (e^x - 1), that of selu's own alpha and all scaled, alpha (e^(x / alpha) -
// 1), or negative_slope x. The slope at 0 is that of below.
Tensor elu(const Tensor& x, double alpha = 1);
Tensor selu(const Tensor& x);
Tensor celu(const Tensor& x, double alpha = 1);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
// leaky_relu whose slope is learned: weight [1], or [C] along dimension 1.
Tensor prelu(const Tensor& x, const Tensor& weight);
// Whose slope is drawn for each element from [lower, upper), or is the middle of them.
Tensor rrelu(const Tensor& x, double lower = 1.0 / 8, double upper = 1.0 / 3,
             bool training = false);
// x between two bounds, at which the slope is 0.
Tensor hardtanh(const Tensor& x, double low = -1, double high = 1);
Tensor relu6(const Tensor& x);
Tensor hardsigmoid(const Tensor& x);  // relu6(x + 3) / 6
Tensor hardswish(const Tensor& x);    // x hardsigmoid(x)
Tensor softsign(const Tensor& x);     // x / (1 + |x|)
Tensor tanhshrink(const Tensor& x);   // x - tanh(x)
// 0 within [-lambda, lambda], outside x, or x moved to 0 by lambda.
Tensor hardshrink(const Tensor& x, double lambda = 0.5);
Tensor softshrink(const Tensor& x, double lambda = 0.5);
// x above the threshold, else `value`.
Tensor threshold(const Tensor& x, double threshold, double value);
// The first half along `dim` times the sigmoid of the second.
Tensor glu(const Tensor& x, int dim = -1);
Tensor softmin(const Tensor& x, int dim = -1);  // softmax(-x)

}  // namespace peal
