// SPDX-License-Identifier: Apache-2.0
// Muon, momentum whose steps are made orthogonal (Jordan et al., "Muon: an optimizer for hidden
// layers in neural networks", 2024), with the names and defaults of torch.optim.Muon: for matrices,
// those inside of a model; embeddings, biases and the last layer belong to another optimizer.
//
// b = momentum b + (1 - momentum) g; the step is along g + momentum (b - g), or b, of which five
// rounds of Newton and Schulz bring all singular values near 1. PyTorch computes them in bf16, peal
// in the parameter's type (or its master's): the same matrix but for bf16's rounding. Thread
// safety: as of Optimizer.
#pragma once

#include <peal/nn/optim/optimizer_of.h>

#include <cstdint>

namespace peal::nn {

// The rate of an [A, B] matrix: lr sqrt(max(1, A / B)); 0.2 lr sqrt(max(A, B)), so that rates and
// decays of AdamW do (Liu et al., "Muon is scalable for LLM training", 2025); or lr sqrt(A / B).
enum class MuonRate : std::uint8_t { original, match_rms_adamw, spectral_unclamped };

struct MuonOptions {
  double lr = 1e-3;
  double weight_decay = 0.1;  // p -= lr weight_decay p
  double momentum = 0.95;
  bool nesterov = true;
  double ns_a = 3.4445, ns_b = -4.7750, ns_c = 2.0315;  // x = a x + (b x x^T + c (x x^T)^2) x
  double eps = 1e-7;
  std::int64_t ns_steps = 5;  // below 100
  MuonRate adjust_lr_fn = MuonRate::original;
  bool maximize = false;
};
class Muon : public OperationOptimizer<Muon, MuonOptions> {
 public:
  using OperationOptimizer::OperationOptimizer;
  static Names names();
  static std::vector<double> settings_of(const MuonOptions& o);

 protected:
  // Error for a parameter that is no matrix.
  Shape state_shape(std::size_t k, const Shape& parameter) const override;
  void update_one(const Stepped& one, const Tensor& g, bool fresh, const Now& now) const override;
};

}  // namespace peal::nn
