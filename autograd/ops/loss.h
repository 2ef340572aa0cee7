// SPDX-License-Identifier: Apache-2.0
// Losses over classes, with PyTorch's semantics. Targets are i64 in [0, classes), or ignore_index:
// the loss of such a row is 0, and the mean does not count it. Another value is an Error that names
// the row.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>

namespace peal {

enum class Reduction : std::uint8_t { none, mean, sum };

// The logarithm of softmax along dim, shifted by the largest: finite for any finite input.
Tensor log_softmax(const Tensor& x, int dim = -1);
// log_probabilities [N, C], target [N] -> scalar, or [N] with Reduction::none.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target,
                Reduction reduction = Reduction::mean, std::int64_t ignore_index = -100);
// log_softmax and nll_loss in one pass: logits [N, C], target [N]. With label smoothing s in [0, 1]
// the class counts 1 - s + s / C and each other one s / C (Szegedy et al., "Rethinking the
// inception architecture for computer vision", 2015, section 7).
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     Reduction reduction = Reduction::mean, std::int64_t ignore_index = -100,
                     double label_smoothing = 0);

}  // namespace peal
