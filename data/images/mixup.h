// SPDX-License-Identifier: Apache-2.0
// Mixing a batch with itself: each image with the one before it (the first with the last), and the
// classes in the same shares, as f32 [B, classes], which cross_entropy takes for targets. As
// torchvision's MixUp and CutMix. By a loop of one's own, or by the loader, of a set that mixes:
//
//   const auto [x, y] = data::mixup(batch, 10, data::drawn_beta(0.2, draw));
//   data::DataLoader loader(std::make_shared<data::Mixed>(images, data::MixOptions{10, 0.2}),
//                           {.batch_size = 64, .shuffle = true});
//
// Zhang et al., "mixup: Beyond empirical risk minimization", 2018; Yun et al., "CutMix", 2019.
// Thread safety: pure, but for the Draw.
#pragma once

#include <peal/data/dataset.h>
#include <peal/data/formats/image.h>

#include <cstdint>

namespace peal::data {

// From the beta distribution of (alpha, alpha), as a quotient of gamma variates (Marsaglia and
// Tsang, "A simple method for generating gamma variables", 2000). Error: alpha of 0 or less, or not
// finite.
double drawn_beta(double alpha, Draw& draw);

// share times each sample and 1 - share of the one before it. x f32 [B, ...] and y i64 [B] on the
// CPU. Errors: others, a class outside of 0..classes-1, a share outside of [0, 1].
Batch mixup(const Batch& batch, std::int64_t classes, double share);

// The box of each image x [B, C, H, W] is that of the one before it; classes have the shares of the
// pixels. Errors: as above, a box that is not inside (it may be empty).
Batch cutmix(const Batch& batch, std::int64_t classes, const Box& box);
// A box whose area is a share 1 - share of the image, about a pixel drawn anywhere and cut at the
// edges.
Box cutmix_box(ImageSize image, double share, Draw& draw);

struct MixOptions {
  std::int64_t classes = 0;
  double mixup = 0, cutmix = 0;  // alpha of each; 0: never. Where both are asked for, either.
};

// A set whose batches for training are mixed (augmented(), which the loader asks for). What is
// drawn for a batch is a function of its first sample: so it depends, as a mixture does anyhow, on
// which samples are in the batch, but not on workers, and a resumed run mixes the same.
class Mixed : public Dataset {
 public:
  // Errors: no set, classes < 1, alphas of which none is above 0.
  Mixed(DatasetRef images, const MixOptions& options);
  std::int64_t size() const override { return images_->size(); }
  Batch get(std::span<const std::int64_t> indices) const override { return images_->get(indices); }
  // y f32 [B, classes].
  Batch augmented(std::span<const std::int64_t> indices, const Draws& draws) const override;

 private:
  DatasetRef images_;
  MixOptions options_;
};

}  // namespace peal::data
