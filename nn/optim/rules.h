// SPDX-License-Identifier: Apache-2.0
// Optimizers whose step is a rule of one element (ops/optimizer.h: rule_step): RMSprop, Adagrad,
// Adadelta, Adamax, NAdam, RAdam and Lion, with PyTorch's names, defaults and formulas. A step is
// one pass over each parameter, which on a device is a few launches, and may lie in a captured
// graph. `maximize` goes up along the gradients. Thread safety: as of Optimizer.
#pragma once

#include <peal/nn/optim/optimizer_of.h>

namespace peal::nn {

// Tieleman and Hinton, "RMSProp", lecture 6.5, 2012; centered: Graves, "Generating sequences with
// recurrent neural networks", 2013.
struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;  // v = alpha v + (1 - alpha) g^2
  double eps = 1e-8;
  double weight_decay = 0;  // g += weight_decay p, here and below
  double momentum = 0;
  bool centered = false;  // divides by the root of the variance
  bool maximize = false;
};
class RMSprop : public RuleOptimizer<RMSprop, RMSpropOptions> {
 public:
  using RuleOptimizer::RuleOptimizer;
  static Names names();
  static std::vector<double> settings_of(const RMSpropOptions& o);

 protected:
  bool wants_state(std::size_t k, const Shape&, std::span<const double> settings) const override;
  RuleStep rule(const Now& now) const override;
};

// Duchi et al., "Adaptive subgradient methods", JMLR 2011.
struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;  // lr / (1 + (step - 1) lr_decay)
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
};
class Adagrad : public RuleOptimizer<Adagrad, AdagradOptions> {
 public:
  using RuleOptimizer::RuleOptimizer;
  static Names names();
  static std::vector<double> settings_of(const AdagradOptions& o);

 protected:
  double state_start(std::size_t k, std::span<const double> settings) const override;
  RuleStep rule(const Now& now) const override;
};

// Zeiler, "ADADELTA: an adaptive learning rate method", 2012.
struct AdadeltaOptions {
  double lr = 1;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;
};
class Adadelta : public RuleOptimizer<Adadelta, AdadeltaOptions> {
 public:
  using RuleOptimizer::RuleOptimizer;
  static Names names();
  static std::vector<double> settings_of(const AdadeltaOptions& o);

 protected:
  RuleStep rule(const Now& now) const override;
};

// Adam by the largest gradient (Kingma and Ba, "Adam", ICLR 2015, algorithm 2).
struct AdamaxOptions {
  double lr = 2e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;
};
class Adamax : public RuleOptimizer<Adamax, AdamaxOptions> {
 public:
  using RuleOptimizer::RuleOptimizer;
  static Names names();
  static std::vector<double> settings_of(const AdamaxOptions& o);

 protected:
  RuleStep rule(const Now& now) const override;
};

// Dozat, "Incorporating Nesterov momentum into Adam", 2016.
struct NAdamOptions {
  double lr = 2e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;         // mu = beta1 (1 - 0.96^(step momentum_decay) / 2)
  bool decoupled_weight_decay = false;  // p -= lr weight_decay p, apart from the moments
  bool maximize = false;
};
class NAdam : public RuleOptimizer<NAdam, NAdamOptions> {
 public:
  using RuleOptimizer::RuleOptimizer;
  static Names names();
  static std::vector<double> settings_of(const NAdamOptions& o);

 protected:
  void advance(std::span<double> numbers, const Now& now) const override;
  RuleStep rule(const Now& now) const override;
};

// Liu et al., "On the variance of the adaptive learning rate and beyond", ICLR 2020.
struct RAdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;
  bool maximize = false;
};
class RAdam : public RuleOptimizer<RAdam, RAdamOptions> {
 public:
  using RuleOptimizer::RuleOptimizer;
  static Names names();
  static std::vector<double> settings_of(const RAdamOptions& o);

 protected:
  RuleStep rule(const Now& now) const override;
};

// Chen et al., "Symbolic discovery of optimization algorithms", 2023. Wants a tenth of AdamW's rate
// and ten times its decay.
struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;  // p -= lr weight_decay p
  bool maximize = false;
};
class Lion : public RuleOptimizer<Lion, LionOptions> {
 public:
  using RuleOptimizer::RuleOptimizer;
  static Names names();
  static std::vector<double> settings_of(const LionOptions& o);

 protected:
  RuleStep rule(const Now& now) const override;
};

}  // namespace peal::nn
