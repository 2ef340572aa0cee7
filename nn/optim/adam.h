// SPDX-License-Identifier: Apache-2.0
// Adam (Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015, algorithm 1) and
// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, algorithm 2),
// with PyTorch's defaults. amsgrad divides by the largest second moment so far (Reddi et al., "On
// the convergence of Adam and beyond", ICLR 2018); maximize goes up along the gradients. Thread
// safety: as of Optimizer.
#pragma once

#include <peal/nn/optim/optimizer.h>

namespace peal::nn {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // g += weight_decay p
  bool amsgrad = false, maximize = false;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  // p -= lr weight_decay p, apart from the moments
  bool amsgrad = false, maximize = false;
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
        parameters, {options.lr, options.beta1, options.beta2, options.eps, options.weight_decay,
                     options.amsgrad ? 1.0 : 0.0, options.maximize ? 1.0 : 0.0});
  }

 protected:
  Adam(std::string_view name, bool decoupled);
  bool wants_state(std::size_t k, const Shape&, std::span<const double> settings) const override;
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
        parameters, {options.lr, options.beta1, options.beta2, options.eps, options.weight_decay,
                     options.amsgrad ? 1.0 : 0.0, options.maximize ? 1.0 : 0.0});
  }
};

}  // namespace peal::nn
