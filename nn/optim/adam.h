// SPDX-License-Identifier: Apache-2.0
// Adam (Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015, algorithm 1) and
// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, algorithm 2),
// with PyTorch's defaults. Thread safety: as of Optimizer.
#pragma once

#include <peal/nn/optim/optimizer.h>

namespace peal::nn {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // g += weight_decay p
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  // p -= lr weight_decay p, apart from the moments
};

class Adam : public Optimizer {
 public:
  explicit Adam(Parameters parameters, const AdamOptions& options = {})
      : Adam(std::vector{ParameterGroup<AdamOptions>{std::move(parameters), options}}) {}
  explicit Adam(const std::vector<ParameterGroup<AdamOptions>>& groups) : Adam("Adam", false) {
    for (const auto& [parameters, options] : groups) add_group(parameters, options);
  }
  // One more group, of parameters that are in none.
  void add_group(const Parameters& parameters, const AdamOptions& options) {
    Optimizer::add_group(
        parameters, {options.lr, options.beta1, options.beta2, options.eps, options.weight_decay});
  }

 protected:
  Adam(std::string_view name, bool decoupled);
  void check(std::span<const double> settings) const override;
  std::size_t state_count(std::span<const double>) const override { return 2; }
  void update(const Alike& alike, std::span<const double> settings) override;

 private:
  bool decoupled_;
};

class AdamW : public Adam {
 public:
  explicit AdamW(Parameters parameters, const AdamWOptions& options = {})
      : AdamW(std::vector{ParameterGroup<AdamWOptions>{std::move(parameters), options}}) {}
  explicit AdamW(const std::vector<ParameterGroup<AdamWOptions>>& groups) : Adam("AdamW", true) {
    for (const auto& [parameters, options] : groups) add_group(parameters, options);
  }
  void add_group(const Parameters& parameters, const AdamWOptions& options) {
    Optimizer::add_group(
        parameters, {options.lr, options.beta1, options.beta2, options.eps, options.weight_decay});
  }
};

}  // namespace peal::nn
