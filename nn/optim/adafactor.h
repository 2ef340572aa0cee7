// SPDX-License-Identifier: Apache-2.0
// Adafactor: Adam's second moment of a matrix as the product of its rows' and columns' means, so
// that the state of a matrix [.., n, m] is [.., n, 1] and [.., 1, m] (Shazeer and Stern,
// "Adafactor: adaptive learning rates with sublinear memory cost", ICML 2018); PyTorch's defaults
// and formulas. Vectors keep a whole `variance`.
//
// Steps are made of operations: they wait for no device, but cannot lie in a captured graph.
// Thread safety: as of Optimizer.
#pragma once

#include <peal/nn/optim/optimizer_of.h>

namespace peal::nn {

struct AdafactorOptions {
  double lr = 1e-2;           // the rate is min(lr, 1 / sqrt(step)) times the parameter's size
  double beta2_decay = -0.8;  // the newest square counts for step^beta2_decay
  double eps1 = 0;            // below this no variance goes; 0: the epsilon of the type
  double eps2 = 1e-3;         // the least size of a parameter
  double d = 1;               // an update whose root mean square is larger is scaled down to it
  double weight_decay = 0;    // p -= lr weight_decay p
  bool maximize = false;
};

class Adafactor : public OperationOptimizer<Adafactor, AdafactorOptions> {
 public:
  using OperationOptimizer::OperationOptimizer;
  static Names names();
  static std::vector<double> settings_of(const AdafactorOptions& o);

 protected:
  void check(std::span<const double> settings) const override;
  bool wants_state(std::size_t k, const Shape& parameter, std::span<const double>) const override;
  Shape state_shape(std::size_t k, const Shape& parameter) const override;
  void update_one(const Stepped& one, const Tensor& g, bool fresh, const Now& now) const override;
};

}  // namespace peal::nn
