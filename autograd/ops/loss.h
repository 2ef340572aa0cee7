// SPDX-License-Identifier: Apache-2.0
// Losses over classes, with PyTorch's semantics. Scores are [N, C], or [N, C, d...] for a class at
// each place of an image or a sequence, or [C] alone. Targets are i64 of the same shape without C,
// in [0, C), or ignore_index: the loss of such a row is 0, and the mean does not count it. Another
// value is an Error that names the row.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>

namespace peal {

// mean is what `{}` stands for, too. batchmean: the sum over the size of the first dimension
// (kl_div's; the others refuse it).
enum class Reduction : std::uint8_t { mean, none, sum, batchmean };

// The logarithm of softmax along dim, shifted by the largest: finite for any finite input.
Tensor log_softmax(const Tensor& x, int dim = -1);

struct NLLOptions {
  Tensor weight{};  // [C], what a target of each class counts; no gradient goes to it
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;  // with a weight: over the sum of the targets' weights
};

// log_probabilities [N, C, d...], target [N, d...] -> a scalar, or target's shape with
// Reduction::none.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, const NLLOptions& options);
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target,
                Reduction reduction = Reduction::mean, std::int64_t ignore_index = -100);

struct CrossEntropyOptions {
  Tensor weight{};                   // as above
  std::int64_t ignore_index = -100;  // not for probabilities
  Reduction reduction = Reduction::mean;
  double label_smoothing = 0;
};

// nll_loss of log_softmax, in one pass where there is no weight, which keeps two numbers a row
// beside the logits; on the CPU their gradient takes their place where nobody else holds them:
// logits [N, C, d...], target [N, d...]. Or targets that are probabilities, of logits' shape and
// type: -sum of target log p over the classes, whose mean is over N d... rows; they may want a
// gradient. With label smoothing s in [0, 1] the class counts 1 - s + s / C and each other one s /
// C (Szegedy et al., "Rethinking the inception architecture for computer vision", 2015, section 7).
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     const CrossEntropyOptions& options);
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     Reduction reduction = Reduction::mean, std::int64_t ignore_index = -100,
                     double label_smoothing = 0);

}  // namespace peal
