// SPDX-License-Identifier: Apache-2.0
// Distances and angles between vectors, with PyTorch's semantics. Operands broadcast. Thread
// safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// The p-norm of a - b + eps along the last dimension, [..., D] -> [...]; p >= 0, or infinite for
// the largest. eps keeps the gradient finite where a and b are equal.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p = 2, double eps = 1e-6,
                         bool keepdim = false);
// The p-norm of each row of a less each row of b: [..., P, D] and [..., R, D] give [..., P, R]. It
// takes the memory of all differences, P R D, but for p = 2 of more than 25 rows: there it is a
// product of matrices, which loses the last half of the digits of what is small beside |a| + |b|.
// The gradient where a distance is 0 is 0.
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2);
// The p-norms of each two rows of x [N, D], once each: of 0 and 1, 0 and 2, ... to [N (N - 1) / 2].
// It takes the memory of all differences, but for p = 2 on the CPU. The gradient where a distance
// is 0 is 0.
Tensor pdist(const Tensor& x, double p = 2);
// The cosine of the angle along dim, which goes; a length below eps counts as eps.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int dim = 1, double eps = 1e-8);
// x over its p-norm along dim, or over eps where that is larger.
Tensor normalize(const Tensor& x, double p = 2, int dim = 1, double eps = 1e-12);

}  // namespace peal
