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
  Tensor first, second;  // the momentum buffer or undefined; exp_avg and exp_avg_sq; a rule's
  Tensor rounded = {};   // undefined where the parameter is nobody's master
  Tensor third = {};     // of rules with so many tensors of state
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

// What rule_step knows beside SGD and Adam. Each has its formula in kernels/rules.h, and its
// tensors of state in the order in which they stand here.
enum class Rule : std::uint8_t {
  amsgrad,                    // exp_avg, exp_avg_sq, max_exp_avg_sq
  rmsprop,                    // square_avg
  rmsprop_momentum,           // square_avg, momentum_buffer
  rmsprop_centered,           // square_avg, grad_avg
  rmsprop_centered_momentum,  // square_avg, grad_avg, momentum_buffer
  adagrad,                    // sum
  adadelta,                   // square_avg, acc_delta
  adamax,                     // exp_avg, exp_inf
  nadam,                      // exp_avg, exp_avg_sq
  radam,
  radam_not_rectified,  // exp_avg, exp_avg_sq
  lion,                 // exp_avg
};

constexpr int states_of(Rule rule) {
  switch (rule) {
    case Rule::amsgrad:
    case Rule::rmsprop_centered_momentum:
      return 3;
    case Rule::rmsprop:
    case Rule::adagrad:
    case Rule::lion:
      return 1;
    default:
      return 2;
  }
}

// The numbers of one step, with the corrections of the step in them.
struct RuleStep {
  Rule rule = Rule::amsgrad;
  double rate = 0;          // of what the rule makes of gradient and state
  double weight_decay = 0;  // g += weight_decay p
  double shrink = 1;        // p *= shrink at first, where the decay is decoupled
  double beta1 = 0, beta2 = 0, eps = 0;
  double root_scale = 1;  // of the root of the second moment
  double grad_rate = 0;   // nadam: of the gradient itself
  const std::function<RuleStep()>* replayed = nullptr;
};

}  // namespace peal
