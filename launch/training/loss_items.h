// SPDX-License-Identifier: Apache-2.0
// What the loss of a batch is the mean over, of the losses of peal that leave targets out or weigh
// them: by it a batch counts among those of its step, so that P ranks learn what one rank learns.
//
//   nn::CrossEntropyLoss{.ignore_index = 0}        the targets that are not 0
//   nn::CrossEntropyLoss{.weight = of_classes}     the sum of the targets' weights
//
// A loss is known by its class, so one that is wrapped in a function of one's own is another.
// Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace peal::launch {

// How targets that are classes (i64) count.
struct TargetCounts {
  std::int64_t ignore_index = -100;
  Tensor weight{};  // [classes]; undefined: one each

  // Of targets y of any shape: those that are not left out, or the sum of their weights.
  double of(const Tensor& y) const;
};

// Of a loss that is a mean by CrossEntropyLoss or NLLLoss; nothing of any other.
std::optional<TargetCounts> counts_of(
    const std::function<Tensor(const Tensor& output, const Tensor& y)>& loss);

}  // namespace peal::launch
