// SPDX-License-Identifier: Apache-2.0
// Losses of each element against a target of the same shape and type, with PyTorch's semantics; the
// target may want a gradient too. A scalar, or x's shape with Reduction::none. A weight, where
// there is one, is of x's type: what each element counts.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/loss.h>

namespace peal {

// (x - target)^2. A weight has x's shape, and the mean is over the sum of the weights; so has
// l1_loss.
Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor mse_loss(const Tensor& x, const Tensor& target, const Tensor& weight,
                Reduction reduction = Reduction::mean);
// |x - target|; the gradient where they are equal is 0.
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor l1_loss(const Tensor& x, const Tensor& target, const Tensor& weight,
               Reduction reduction = Reduction::mean);
// (x - target)^2 / (2 beta) where |x - target| < beta, else |x - target| - beta / 2. beta >= 0.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                      double beta = 1.0);
// (x - target)^2 / 2 where |x - target| < delta, else delta (|x - target| - delta / 2) (Huber,
// "Robust estimation of a location parameter", 1964). delta > 0. With a weight of x's shape the
// mean is over the elements.
Tensor huber_loss(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                  double delta = 1.0);
Tensor huber_loss(const Tensor& x, const Tensor& target, const Tensor& weight,
                  Reduction reduction = Reduction::mean, double delta = 1.0);

// Each stretches to x's shape; the mean is over the elements.
struct BCEWithLogitsOptions {
  Tensor weight{};
  Tensor pos_weight{};  // times the first term: what a positive example counts beside a negative
  Reduction reduction = Reduction::mean;
};
// -target log sigmoid(x) - (1 - target) log(1 - sigmoid(x)), finite for any finite x.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        Reduction reduction = Reduction::mean);
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        const BCEWithLogitsOptions& options);

}  // namespace peal
