// SPDX-License-Identifier: Apache-2.0
// Losses against distributions: probabilities and their logarithms, counts, means with a variance;
// with PyTorch's semantics. x and target are of one floating type and shape, and either may want a
// gradient. A scalar, or x's shape with Reduction::none.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/loss.h>

namespace peal {

struct BCEOptions {
  Tensor weight{};  // of x's type, stretches to its shape: what each element counts
  Reduction reduction = Reduction::mean;
};
// -target log x - (1 - target) log(1 - x) of probabilities x; logarithms below -100 are -100. Error
// where, on a CPU, x or target leaves [0, 1].
Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const BCEOptions& options = {});

struct KLDivOptions {
  // batchmean, over the first dimension, is what the divergence is called in the literature.
  Reduction reduction = Reduction::mean;
  bool log_target = false;
};
// target (log target - x), of log-probabilities x and probabilities, or with log_target their
// logarithms; 0 where target is 0 (Kullback and Leibler, 1951).
Tensor kl_div(const Tensor& x, const Tensor& target, const KLDivOptions& options = {});

struct PoissonNLLOptions {
  bool log_input = true;  // x is the logarithm of the rate
  bool full = false;      // with Stirling's approximation of log target!, where target is above 1
  double eps = 1e-8;      // under the logarithm, where x is the rate itself
  Reduction reduction = Reduction::mean;
};
// exp(x) - target x, or x - target log(x + eps).
Tensor poisson_nll_loss(const Tensor& x, const Tensor& target,
                        const PoissonNLLOptions& options = {});

struct GaussianNLLOptions {
  bool full = false;  // with the constant log(2 pi) / 2
  double eps = 1e-6;  // the least variance; the gradient passes as if there were none
  Reduction reduction = Reduction::mean;
};
// (log variance + (x - target)^2 / variance) / 2; variance of x's shape, or with 1 in the place of
// one size, or without the last dimension (Nix and Weigend, "Estimating the mean and variance of
// the target probability distribution", 1994). Error for a negative one, on a CPU.
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& variance,
                         const GaussianNLLOptions& options = {});

}  // namespace peal
