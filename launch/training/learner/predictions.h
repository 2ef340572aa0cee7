// SPDX-License-Identifier: Apache-2.0
// What a model says about many samples (fastai: get_preds), from all ranks and in the order of one:
// each sample once, however many ranks there are. Thread safety: the rank's thread.
#pragma once

#include <peal/launch/training/learner/outputs.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace peal::launch {

// On the CPU, the same on all ranks; [n, ...] each, row k of the k-th sample of the order that
// ranks share (without shuffle that of the set).
struct Predictions {
  Tensor predictions;              // outputs by the loss's activation (outputs.h)
  Tensor targets;                  // undefined where batches have no y
  Tensor decoded, inputs, losses;  // undefined where they were not asked for
};

struct PredictionOptions {
  // False: y is not looked at, of samples whose y means nothing; there are no losses then.
  bool with_targets = true;
  bool with_decoded = false, with_input = false;
  bool with_loss = false;  // of each sample (loss_of_each)
};

// How what is said of a sample and of its variants becomes one (fastai: tta).
struct TTAOptions {
  int n = 4;             // variants of each
  double beta = 0.25;    // the sample's share; the mean of its variants has the rest
  bool use_max = false;  // of each class what was said most, instead
};

// What it says about one.
struct Prediction {
  Tensor decoded, predictions;  // without the dimension of the batch
  std::string label;            // the name of the class; empty where classes have none
};

// Keeps what a validation finds. With an "order" in its batches, their rows are put back
// (data::pad_parts). Of a loader by a plan, which does not say where samples belong, rows stay in
// its order, and there is one rank.
class GatherPreds : public Callback {
 public:
  // get_preds() and predict() make it, for one pass.
  GatherPreds(OutputReading reading, PredictionOptions options)
      : reading_(std::move(reading)), options_(options) {}
  // Before all others.
  int order() const override { return -100; }
  void before_validate(Loop& loop) override;
  void before_batch(Loop& loop) override;
  void after_loss(Loop& loop) override;
  // Collective. Errors: no sample on any rank; batches whose rows are of different shapes.
  void after_validate(Loop& loop) override;
  // REQUIRES: a validation is over.
  const Predictions& found() const { return found_; }

 private:
  OutputReading reading_;
  PredictionOptions options_;
  Tensors predictions_, targets_, inputs_, losses_;
  std::vector<std::int64_t> places_;
  Predictions found_;
};

}  // namespace peal::launch
