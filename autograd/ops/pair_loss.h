// SPDX-License-Identifier: Apache-2.0
// Losses of each element against a target of the same shape and type, with PyTorch's semantics; the
// target may want a gradient too. A scalar, or x's shape with Reduction::none.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/loss.h>

namespace peal {

// (x - target)^2
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
// (x - target)^2 / (2 beta) where |x - target| < beta, else |x - target| - beta / 2. beta >= 0.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                      double beta = 1.0);
// -target log sigmoid(x) - (1 - target) log(1 - sigmoid(x)), finite for any finite x.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        Reduction reduction = Reduction::mean);

}  // namespace peal
