// SPDX-License-Identifier: Apache-2.0
// Resilient backpropagation (Riedmiller and Braun, "A direct adaptive method for faster
// backpropagation learning: the RPROP algorithm", 1993), with PyTorch's names, defaults and
// formulas: every element has a step of its own, which grows while its gradient keeps its sign and
// shrinks where it turns; how large the gradient is does not matter. For gradients of the whole
// data set. Thread safety: as of Optimizer.
#pragma once

#include <peal/nn/optim/optimizer_of.h>

namespace peal::nn {

struct RpropOptions {
  double lr = 1e-2;  // the first step; set_lr() changes none that there is
  double etaminus = 0.5, etaplus = 1.2;
  double step_size_min = 1e-6, step_size_max = 50;
  bool maximize = false;
};
class Rprop : public OperationOptimizer<Rprop, RpropOptions> {
 public:
  using OperationOptimizer::OperationOptimizer;
  static Names names();
  static std::vector<double> settings_of(const RpropOptions& o);

 protected:
  double state_start(std::size_t k, std::span<const double> settings) const override;
  void update_one(const Stepped& one, const Tensor& g, bool fresh, const Now& now) const override;
};

}  // namespace peal::nn
