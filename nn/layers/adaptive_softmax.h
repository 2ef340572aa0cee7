// SPDX-License-Identifier: Apache-2.0
// The adaptive softmax over many classes of which few are frequent (Grave et al., "Efficient
// softmax approximation for GPUs", 2017). Thread safety: as of Module.
#pragma once

#include <peal/nn/layers/containers.h>
#include <peal/nn/layers/linear.h>

#include <cstdint>
#include <tuple>
#include <vector>

namespace peal::nn {

// The log-probability of each target, and the mean of the opposites.
struct ASMOutput {
  Tensor output, loss;
  auto fields() { return std::tie(output, loss); }
};

// Classes are numbered from the most frequent one. Those below cutoffs[0] are the head's own, and
// each later range of them is one class of the head, and has a smaller pair of layers: the i-th of
// in_features / div_value^i hidden features. The host waits for the targets of a device; a tail
// that no target is in does not run, and its parameters get no gradient (in DDP: unused ones).
class AdaptiveLogSoftmaxWithLoss : public Module {
 public:
  // Error unless 0 < cutoffs[0] < cutoffs[1] < ... < n_classes, and each tail has a hidden feature.
  AdaptiveLogSoftmaxWithLoss(std::int64_t in_features, std::int64_t n_classes,
                             const std::vector<std::int64_t>& cutoffs, double div_value = 4,
                             bool head_bias = false);

  // x [N, in_features] and target [N] of i64 -> output [N] and a loss [], or of one sample
  // [in_features] and [] -> [] and []. Error for a target that is no class.
  ASMOutput operator()(const Tensor& x, const Tensor& target) {
    return call(&AdaptiveLogSoftmaxWithLoss::score, x, target);
  }
  ASMOutput score(const Tensor& x, const Tensor& target);
  // x [N, in_features] -> the log-probabilities of all classes [N, n_classes].
  Tensor log_prob(const Tensor& x);
  // The likeliest class [N], i64: a tail's layers run where it can be in one of them.
  Tensor predict(const Tensor& x);

  Linear head;
  ModuleList tail;

 private:
  void check_rows(std::string_view op, const Tensor& x) const;

  std::vector<std::int64_t> cutoffs_;  // and n_classes
};

}  // namespace peal::nn
