// SPDX-License-Identifier: Apache-2.0
// Distances and angles between vectors, with PyTorch's semantics. Operands broadcast.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// The p-norm of a - b + eps along the last dimension, [..., D] -> [...]; p >= 0, or infinite for
// the largest. eps keeps the gradient finite where a and b are equal.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p = 2, double eps = 1e-6,
                         bool keepdim = false);
// The cosine of the angle along dim, which goes; a length below eps counts as eps.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int dim = 1, double eps = 1e-8);
// x over its p-norm along dim, or over eps where that is larger.
Tensor normalize(const Tensor& x, double p = 2, int dim = 1, double eps = 1e-12);

}  // namespace peal
