// SPDX-License-Identifier: Apache-2.0
// One step of an optimizer over a list of parameters: parameter, gradient and state are read and
// written once, in one pass, which on a device is a few launches for the whole list. The formulas
// are PyTorch's (torch.optim.SGD, Adam, AdamW ...), for f32 and f64. REQUIRES: the tensors of a
// parameter have its shape, dtype and device; beside a parameter in f32 that is the master of one
// in f16 or bf16, the gradient has that one's dtype, and so does `rounded`, which becomes the
// parameter rounded. All parameters of a list are on one device and of one dtype, and so are their
// gradients, and all have `rounded` or none. What is written counts a version. Nothing is recorded.
//
// In a captured graph the options are numbers of each replay (core/graph.h): `replayed` says them.
// Without it they stay as they were. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/steps.h>

#include <span>

namespace peal {

// g += weight_decay p; b = momentum b + (1 - dampening) g; p -= lr b (nesterov: lr (g + momentum
// b)). `first`, the momentum buffer, is undefined where momentum is 0.
void sgd_step(std::span<const Stepped> list, const SgdStep& options);
void sgd_step(const Tensor& param, const Tensor& grad, const Tensor& momentum_buffer,
              const SgdStep& options);

// Kingma and Ba, "Adam", ICLR 2015, algorithm 1; Loshchilov and Hutter, "Decoupled weight decay
// regularization", ICLR 2019, algorithm 2, where decoupled.
void adam_step(std::span<const Stepped> list, const AdamStep& options);
void adam_step(const Tensor& param, const Tensor& grad, const Tensor& exp_avg,
               const Tensor& exp_avg_sq, const AdamStep& options);

// What the rule makes of the step (steps.h names the rules and their states, kernels/rules.h has
// the formulas). Error where a parameter came with more or fewer tensors of state than the rule
// has.
void rule_step(std::span<const Stepped> list, const RuleStep& options);

}  // namespace peal
