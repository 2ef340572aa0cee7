// SPDX-License-Identifier: Apache-2.0
// Mixing a batch with itself: each image with the one before it (the first with the last), and the
// classes in the same shares, as f32 [B, classes], which cross_entropy takes for targets. As
// torchvision's MixUp and CutMix. A batch is mixed by the loop that trains on it, with a Draw of
// its own a step, so that a resumed run draws the same:
//
//   data::Draw draw = data::Draws{seed, epoch}.of(-1 - step);  // no sample's
//   const auto [x, y] = data::mixup(batch, 10, data::drawn_beta(0.2, draw));
//
// Zhang et al., "mixup: Beyond empirical risk minimization", 2018; Yun et al., "CutMix", 2019.
// Thread safety: pure, but for the Draw.
#pragma once

#include <peal/data/batch.h>
#include <peal/data/draw.h>
#include <peal/data/formats/image.h>

#include <cstdint>

namespace peal::data {

// From the beta distribution of (alpha, alpha), as a quotient of gamma variates (Marsaglia and
// Tsang, "A simple method for generating gamma variables", 2000). Error: alpha of 0 or less.
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

}  // namespace peal::data
