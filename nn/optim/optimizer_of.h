// SPDX-License-Identifier: Apache-2.0
// The frames of most optimizers: one whose step is a rule of rule_step, and one whose step is made
// of operations, parameter by parameter. `Self` says its names() and settings_of(options), the
// settings in the order of their names, flags behind (and refuses what Names cannot, since check()
// overridden is not heard while this is constructed); whatever is derived so has the constructors
// that all optimizers have. Thread safety: as of Optimizer.
#pragma once

#include <peal/autograd/ops/choose.h>
#include <peal/nn/optim/optimizer.h>

namespace peal::nn {

// An optimizer of one group or of several.
template <class Self, class Options>
class OptimizerOf : public Optimizer {
 public:
  explicit OptimizerOf(Parameters parameters, const Options& options = {})
      : Optimizer(Self::names()) {
    add_group(parameters, options);
  }
  explicit OptimizerOf(const std::vector<ParameterGroup<Options>>& groups)
      : Optimizer(Self::names()) {
    for (const auto& [parameters, options] : groups) add_group(parameters, options);
  }
  // One more group, of parameters that are in none.
  void add_group(const Parameters& parameters, const Options& options) {
    Optimizer::add_group(parameters, Self::settings_of(options));
  }
};

template <class Self, class Options>
class RuleOptimizer : public OptimizerOf<Self, Options> {
 public:
  using OptimizerOf<Self, Options>::OptimizerOf;

 protected:
  using typename Optimizer::Alike;
  using typename Optimizer::Now;
  virtual RuleStep rule(const Now& now) const = 0;
  void update(const Alike& alike, std::span<const double> settings) final {
    RuleStep step = rule({alike.step, settings, alike.numbers});
    const std::function<RuleStep()> replayed = [this, now = alike.replayed] { return rule(now()); };
    if (alike.replayed) step.replayed = &replayed;
    rule_step(alike.list, step);
  }
};

// Reads each parameter several times, and cannot lie in a captured graph.
template <class Self, class Options>
class OperationOptimizer : public OptimizerOf<Self, Options> {
 public:
  using OptimizerOf<Self, Options>::OptimizerOf;

 protected:
  using typename Optimizer::Alike;
  using typename Optimizer::Now;
  // `g` has the parameter's type; `one.param`, perhaps a master, is to be written in place.
  virtual void update_one(const Stepped& one, const Tensor& g, bool fresh,
                          const Now& now) const = 0;
  void update(const Alike& alike, std::span<const double> settings) final {
    PEAL_CHECK(!alike.replayed, this->name(),
               ": its step is made of operations and cannot lie in a captured graph: leave "
               "step() outside of what the graph runs");
    for (const Stepped& one : alike.list) {
      update_one(one, cast(one.grad, one.param.dtype()), alike.fresh,
                 {alike.step, settings, alike.numbers});
      if (one.rounded.defined()) one.rounded.copy_(cast(one.param, one.rounded.dtype()));
    }
  }
};

}  // namespace peal::nn
