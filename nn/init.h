// SPDX-License-Identifier: Apache-2.0
// How parameters start. Draws from the context's generator, so that a seed decides a model, on
// every device alike. Thread safety: as of the context.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal::nn::init {

// Inputs of one output: the product of all sizes but the first, for a weight [out, in, ...].
std::int64_t fan_in(const Shape& weight);

// 1 / sqrt(fan_in): the bound of PyTorch's Linear and Conv2d, for weight and bias alike. It is He's
// uniform initialisation with a = sqrt(5) (He et al., "Delving deep into rectifiers", ICCV 2015,
// section 2.2): sqrt(2 / (1 + a^2)) * sqrt(3 / fan_in).
double fan_in_bound(const Shape& weight);

// A new f32 tensor, uniform in [-bound, bound).
Tensor uniform(const Shape& shape, double bound);

}  // namespace peal::nn::init
