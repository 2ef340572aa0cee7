// SPDX-License-Identifier: Apache-2.0
// One step of an optimizer over a list of parameters: parameter, gradient and state are read and
// written once, in one pass, which on a device is a few launches for the whole list. The formulas
// are PyTorch's (torch.optim.SGD, Adam, AdamW), for f32 and f64. REQUIRES: the tensors of a
// parameter have its shape, dtype and device; beside a parameter in f32 that is the master of one
// in f16 or bf16, the gradient has that one's dtype, and so does `rounded`, which becomes the
// parameter rounded. All parameters of a list are on one device and of one dtype, and so are their
// gradients, and all have `rounded` or none. What is written counts a version. Nothing is recorded.
//
// In a captured graph the options are numbers of each replay (core/graph.h): `replayed` says them.
// Without it they stay as they were. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <functional>
#include <span>

namespace peal {

// What a step takes of one parameter.
struct Stepped {
  Tensor param, grad;
  Tensor first, second;  // the momentum buffer or undefined; exp_avg and exp_avg_sq
  Tensor rounded = {};   // undefined where the parameter is nobody's master
};

struct SgdStep {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool first = false;  // this parameter's first step: the momentum buffer becomes the gradient
  const std::function<SgdStep()>* replayed = nullptr;
};

// g += weight_decay p; b = momentum b + (1 - dampening) g; p -= lr b (nesterov: lr (g + momentum
// b)). `first`, the momentum buffer, is undefined where momentum is 0.
void sgd_step(std::span<const Stepped> list, const SgdStep& options);
void sgd_step(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
              const SgdStep& options);

struct AdamStep {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  std::int64_t step = 1;   // counts from 1
  bool decoupled = false;  // AdamW: the decay shrinks p itself and does not enter the moments
  const std::function<AdamStep()>* replayed = nullptr;
};

// Kingma and Ba, "Adam", ICLR 2015, algorithm 1; Loshchilov and Hutter, "Decoupled weight decay
// regularization", ICLR 2019, algorithm 2, where decoupled.
void adam_step(std::span<const Stepped> list, const AdamStep& options);
void adam_step(const Tensor& param, const Tensor& grad, const Tensor& exp_avg,
               const Tensor& exp_avg_sq, const AdamStep& options);

}  // namespace peal
