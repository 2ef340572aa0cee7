// SPDX-License-Identifier: Apache-2.0
// One step of an optimizer over one tensor: parameter, gradient and state are read and written
// once, in one pass. The formulas are PyTorch's (torch.optim.SGD, Adam, AdamW), for f32 and f64.
// REQUIRES: all tensors have the parameter's shape, dtype and device. The parameter and the state
// count a version. Nothing is recorded. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>

namespace peal {

struct SgdStep {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool first = false;  // this parameter's first step: the momentum buffer becomes the gradient
};

// g += weight_decay p; b = momentum b + (1 - dampening) g; p -= lr b (nesterov: lr (g + momentum
// b)). `momentum_buffer` is undefined where momentum is 0.
void sgd_step(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
              const SgdStep& options);

struct AdamStep {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  std::int64_t step = 1;   // counts from 1
  bool decoupled = false;  // AdamW: the decay shrinks p itself and does not enter the moments
};

// Kingma and Ba, "Adam", ICLR 2015, algorithm 1; Loshchilov and Hutter, "Decoupled weight decay
// regularization", ICLR 2019, algorithm 2, where decoupled.
void adam_step(const Tensor& param, const Tensor& grad, const Tensor& exp_avg,
               const Tensor& exp_avg_sq, const AdamStep& options);

}  // namespace peal
