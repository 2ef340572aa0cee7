// SPDX-License-Identifier: Apache-2.0
// Stochastic gradient descent, with momentum (Sutskever et al., "On the importance of
// initialization and momentum in deep learning", ICML 2013) in PyTorch's form: v = momentum v + g;
// p -= lr v. Thread safety: as of Optimizer.
#pragma once

#include <peal/nn/optim/optimizer.h>

namespace peal::nn {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;     // v = momentum v + (1 - dampening) g, from the second step on
  double weight_decay = 0;  // g += weight_decay p
  bool nesterov = false;    // p -= lr (g + momentum v); wants momentum and no dampening
  bool maximize = false;    // p += ...
};

//   SGD optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9});
class SGD : public Optimizer {
 public:
  explicit SGD(Parameters parameters, const SGDOptions& options = {});
  explicit SGD(const std::vector<ParameterGroup<SGDOptions>>& groups);
  // One more group, of parameters that are in none.
  void add_group(const Parameters& parameters, const SGDOptions& options);

 protected:
  void check(std::span<const double> settings) const override;
  bool wants_state(std::size_t k, const Shape&, std::span<const double> settings) const override;
  void update(const Alike& alike, std::span<const double> settings) override;
};

}  // namespace peal::nn
