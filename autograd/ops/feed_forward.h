// SPDX-License-Identifier: Apache-2.0
// The part of a transformer block that every token goes through by itself (Vaswani et al.,
// "Attention is all you need", 2017, section 3.3), as one op.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/activation.h>

namespace peal {

// linear(gelu(linear(x, up, up_bias), approximation), down, down_bias): x [..., in], up [hidden,
// in], down [out, hidden], biases [hidden] and [out] or undefined -> [..., out]. On CUDA gelu by
// tanh and its gradient are made by the products' last steps, which spares two passes over the
// hidden elements.
Tensor feed_forward(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                    const Tensor& down_bias,
                    GeluApproximation approximation = GeluApproximation::none);

}  // namespace peal
