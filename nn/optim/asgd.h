// SPDX-License-Identifier: Apache-2.0
// Averaged stochastic gradient descent (Polyak and Juditsky, "Acceleration of stochastic
// approximation by averaging", 1992; the rates are those of Bottou, "Large-scale machine learning
// with stochastic gradient descent", 2010), with PyTorch's names, defaults and formulas. The state
// `ax` is the average of the parameter's values from step t0 on, and before that its value: what a
// model is evaluated with. Thread safety: as of Optimizer.
#pragma once

#include <peal/nn/optim/optimizer_of.h>

namespace peal::nn {

struct ASGDOptions {
  double lr = 1e-2;
  double lambd = 1e-4;  // the rate is lr / (1 + lambd lr step)^alpha; p also shrinks by lambd rate
  double alpha = 0.75;
  double t0 = 1e6;  // where averaging begins
  double weight_decay = 0;
  bool maximize = false;
};
class ASGD : public OperationOptimizer<ASGD, ASGDOptions> {
 public:
  using OperationOptimizer::OperationOptimizer;
  static Names names();
  static std::vector<double> settings_of(const ASGDOptions& o);

 protected:
  void advance(std::span<double> numbers, const Now& now) const override;
  void update_one(const Stepped& one, const Tensor& g, bool fresh, const Now& now) const override;
};

}  // namespace peal::nn
