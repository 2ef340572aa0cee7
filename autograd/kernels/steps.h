// SPDX-License-Identifier: Apache-2.0
// What a step of an optimizer is told: the tensors of each parameter, and the numbers of the step
// (ops/optimizer.h says what is computed from them). Thread safety: values.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <functional>

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

struct AdamStep {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  std::int64_t step = 1;   // counts from 1
  bool decoupled = false;  // AdamW: the decay shrinks p itself and does not enter the moments
  const std::function<AdamStep()>* replayed = nullptr;
};

}  // namespace peal
