// SPDX-License-Identifier: Apache-2.0
// The rules of rule_step (steps.h), element by element, compiled for the host (at every vector
// level) and for CUDA alike, as functors.h has it. The formulas are PyTorch's (torch.optim); Lion
// is Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2. Thread
// safety: values.
#pragma once

#include <peal/autograd/kernels/functors.h>

namespace peal::functor {

template <class T>
struct Rules {
  Rule rule;
  T rate, weight_decay, shrink;
  T beta1, beta2, rest1, rest2;  // rest: 1 - beta, rounded once
  T eps, root_scale, grad_rate;
  PEAL_ELEMENT explicit Rules(const RuleStep& o)
      : rule(o.rule),
        rate(T(o.rate)),
        weight_decay(T(o.weight_decay)),
        shrink(T(o.shrink)),
        beta1(T(o.beta1)),
        beta2(T(o.beta2)),
        rest1(T(1 - o.beta1)),
        rest2(T(1 - o.beta2)),
        eps(T(o.eps)),
        root_scale(T(o.root_scale)),
        grad_rate(T(o.grad_rate)) {}

  // The new parameter; a, b and c are the tensors of state in the rule's order, and those that it
  // has not are not touched.
  template <Rule which>
  PEAL_ELEMENT T step(T p, T g, T& a, T& b, T& c) const {
    g = g + weight_decay * p;
    p = p * shrink;
    if constexpr (which == Rule::amsgrad) {
      a = beta1 * a + rest1 * g;
      b = beta2 * b + rest2 * g * g;
      c = c > b ? c : b;
      return p - rate * a / (square_root(c) * root_scale + eps);
    } else if constexpr (which == Rule::rmsprop || which == Rule::rmsprop_momentum) {
      a = beta2 * a + rest2 * g * g;
      return rms<which == Rule::rmsprop_momentum>(p, g, square_root(a), b);
    } else if constexpr (which == Rule::rmsprop_centered ||
                         which == Rule::rmsprop_centered_momentum) {
      a = beta2 * a + rest2 * g * g;
      b = beta2 * b + rest2 * g;
      const T variance = a - b * b;  // below 0 by rounding, where gradients hardly change
      return rms<which == Rule::rmsprop_centered_momentum>(
          p, g, square_root(variance < T(0) ? T(0) : variance), c);
    } else if constexpr (which == Rule::adagrad) {
      a = a + g * g;
      return p - rate * g / (square_root(a) + eps);
    } else if constexpr (which == Rule::adadelta) {
      a = beta2 * a + rest2 * g * g;
      const T delta = square_root(b + eps) / square_root(a + eps) * g;
      b = beta2 * b + rest2 * delta * delta;
      return p - rate * delta;
    } else if constexpr (which == Rule::adamax) {
      a = beta1 * a + rest1 * g;
      const T size = (g < T(0) ? -g : g) + eps, before = beta2 * b;
      b = before > size ? before : size;
      return p - rate * a / b;
    } else if constexpr (which == Rule::nadam) {
      a = beta1 * a + rest1 * g;
      b = beta2 * b + rest2 * g * g;
      return p - (grad_rate * g + rate * a) / (square_root(b) * root_scale + eps);
    } else if constexpr (which == Rule::radam) {
      a = beta1 * a + rest1 * g;
      b = beta2 * b + rest2 * g * g;
      return p - rate * a / (square_root(b) + eps);
    } else if constexpr (which == Rule::radam_not_rectified) {
      a = beta1 * a + rest1 * g;
      b = beta2 * b + rest2 * g * g;
      return p - rate * a;
    } else {
      static_assert(which == Rule::lion);
      const T u = beta1 * a + rest1 * g;
      a = beta2 * a + rest2 * g;
      return p - (u > T(0) ? rate : u < T(0) ? -rate : rate * u);  // NaN stays one
    }
  }

 private:
  template <bool with_momentum>
  PEAL_ELEMENT T rms(T p, T g, T root, T& buffer) const {
    const T scaled = g / (root + eps);
    if constexpr (!with_momentum) return p - rate * scaled;
    buffer = beta1 * buffer + scaled;
    return p - rate * buffer;
  }
};

// run.template operator()<the rule>().
template <class Run>
PEAL_ELEMENT void with_rule(Rule rule, Run&& run) {
  switch (rule) {
    case Rule::amsgrad:
      return run.template operator()<Rule::amsgrad>();
    case Rule::rmsprop:
      return run.template operator()<Rule::rmsprop>();
    case Rule::rmsprop_momentum:
      return run.template operator()<Rule::rmsprop_momentum>();
    case Rule::rmsprop_centered:
      return run.template operator()<Rule::rmsprop_centered>();
    case Rule::rmsprop_centered_momentum:
      return run.template operator()<Rule::rmsprop_centered_momentum>();
    case Rule::adagrad:
      return run.template operator()<Rule::adagrad>();
    case Rule::adadelta:
      return run.template operator()<Rule::adadelta>();
    case Rule::adamax:
      return run.template operator()<Rule::adamax>();
    case Rule::nadam:
      return run.template operator()<Rule::nadam>();
    case Rule::radam:
      return run.template operator()<Rule::radam>();
    case Rule::radam_not_rectified:
      return run.template operator()<Rule::radam_not_rectified>();
    case Rule::lion:
      return run.template operator()<Rule::lion>();
  }
}

}  // namespace peal::functor
