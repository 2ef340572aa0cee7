// SPDX-License-Identifier: Apache-2.0
// What a model's outputs say, by the loss that it is trained with (fastai: activation and decodes
// of a loss): logits under a CrossEntropyLoss are read as probabilities, and decoded as the
// likeliest class. And a loss sample by sample, for who looks at samples, or weighs them.
//
//   loss                activation     decodes
//   CrossEntropyLoss    softmax        class of the largest, dim 1
//   NLLLoss             exp            class of the largest, dim 1
//   BCEWithLogitsLoss   sigmoid        above 0.5
//   others              as they are    as they are
//
// A loss is known by its class, so one that is wrapped in a function of one's own is another.
// Thread safety: pure functions.
#pragma once

#include <peal/launch/training/learner/loop.h>

#include <functional>
#include <string>

namespace peal::launch {

struct OutputReading {
  std::string activation_name;                      // "softmax", "exp", "sigmoid", "none"
  std::function<Tensor(const Tensor&)> activation;  // of outputs [B, ...]
  std::function<Tensor(const Tensor&)> decodes;     // of what activation gives
};
// Of peal's losses that give classes or probabilities; of any other its outputs [B, ...] are taken
// as they are.
OutputReading reading_of(const Loop::LossFunction& loss);

// [B], with a gradient: of each sample its loss alone, which of several places (of a sequence, of
// an image) is their mean. Of peal's losses with a `reduction` it is their unreduced one, in which
// class weights count, and what is ignored is 0; of another it is found row by row. Error for
// another loss that gives several elements.
Tensor loss_of_each(const Loop::LossFunction& loss, const Tensor& output, const Tensor& y);

}  // namespace peal::launch
