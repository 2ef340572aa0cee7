// SPDX-License-Identifier: Apache-2.0
// MixUp and CutMix as callbacks (fastai has them by these names): each sample of a training batch
// is mixed with another one of the batch, and the loss with it, in the same shares:
//
//   share * loss(output, y) + (1 - share) * loss(output, y of the other),
//
// the mean over the samples of the rank's batch. So any loss of classes will do, with label
// smoothing or without (loss_of_each in outputs.h); a y of numbers is mixed itself. Validations are
// left as they are.
//
//   launch::Learner learner(job, {&training, &validation}, net,
//                           {.loss = nn::CrossEntropyLoss{.label_smoothing = 0.1},
//                            .callbacks = {std::make_shared<launch::MixUp>()}});
//
// What is drawn is a function of the training loader's seed, its epoch, the number of the batch and
// the rank, so a run that is taken up mixes as one that was not stopped. (data::mixup and
// data::Mixed mix in the loader, before the device, and make y probabilities.) Zhang et al.,
// "mixup: Beyond empirical risk minimization", 2018; Yun et al., "CutMix", 2019. Thread safety: the
// rank's thread.
#pragma once

#include <peal/data/draw.h>
#include <peal/launch/training/learner/loop.h>

#include <vector>

namespace peal::launch {

class MixHandler : public Callback {
 public:
  // Errors: x of no floating type, more inputs than x.
  void before_batch(Loop& loop) override;
  void after_loss(Loop& loop) override;

 protected:
  // `name` is what errors call it. Error: alpha of 0 or less, or not finite.
  MixHandler(const char* name, double alpha);
  // x becomes a mixture of itself and `others`, the same samples in another order. Gives what each
  // one's own share is, [B].
  virtual std::vector<float> mix(Tensor& x, const Tensor& others, data::Draw& draw) const = 0;
  double alpha() const { return alpha_; }
  const char* name() const { return name_; }

 private:
  const char* name_;
  double alpha_;
  Tensor shares_, others_y_;  // of the batch under way; undefined where it is not mixed
};

// Each sample with another one, by a share of its own from the beta distribution of (alpha, alpha);
// its own share is the larger one.
class MixUp : public MixHandler {
 public:
  // Error unless alpha is finite and above 0: below 1 shares are near 0 or 1, above it near a half.
  explicit MixUp(double alpha = 0.4) : MixHandler("MixUp", alpha) {}

 protected:
  std::vector<float> mix(Tensor& x, const Tensor& others, data::Draw& draw) const override;
};

// Of images x [B, C, H, W] a box is another one's, the same box in all of a batch.
class CutMix : public MixHandler {
 public:
  // As of MixUp; the share is the box's of the image.
  explicit CutMix(double alpha = 1) : MixHandler("CutMix", alpha) {}

 protected:
  // Error: x of other dimensions.
  std::vector<float> mix(Tensor& x, const Tensor& others, data::Draw& draw) const override;
};

}  // namespace peal::launch
