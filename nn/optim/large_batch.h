// SPDX-License-Identifier: Apache-2.0
// LARS and LAMB: rates of each parameter's own, in proportion to its norm over that of its update,
// for batches of thousands of samples (You, Gitman and Ginsburg, "Large batch training of
// convolutional networks", 2017; You et al., "Large batch optimization for deep learning", ICLR
// 2020). The ratio is 1 where either norm is 0. Biases and norms' parameters mostly go into a group
// of their own without decay.
//
// Steps are made of operations: they wait for no device, but cannot lie in a captured graph.
// Thread safety: as of Optimizer.
#pragma once

#include <peal/nn/optim/optimizer_of.h>

namespace peal::nn {

struct LARSOptions {
  double lr = 1e-3;
  double momentum = 0.9;
  double weight_decay = 0;  // g += weight_decay p
  double trust_coefficient = 1e-3;
  double eps = 1e-8;
  bool nesterov = false;
  bool maximize = false;
};

// g = g + weight_decay p, times trust_coefficient |p| / (|g| + weight_decay |p| + eps); then as
// SGD.
class LARS : public OperationOptimizer<LARS, LARSOptions> {
 public:
  using OperationOptimizer::OperationOptimizer;
  static Names names();
  static std::vector<double> settings_of(const LARSOptions& o);

 protected:
  bool wants_state(std::size_t k, const Shape&, std::span<const double> settings) const override;
  void update_one(const Stepped& one, const Tensor& g, bool fresh, const Now& now) const override;
};

struct LAMBOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 1e-2;
  bool maximize = false;
};

// r = Adam's update + weight_decay p; p -= lr |p| / |r| r.
class LAMB : public OperationOptimizer<LAMB, LAMBOptions> {
 public:
  using OperationOptimizer::OperationOptimizer;
  static Names names();
  static std::vector<double> settings_of(const LAMBOptions& o);

 protected:
  void update_one(const Stepped& one, const Tensor& g, bool fresh, const Now& now) const override;
};

}  // namespace peal::nn
