// SPDX-License-Identifier: Apache-2.0
// What makes tensors of samples of image shards: "jpg", "jpeg" or "png" is the image, "cls" its
// class as WebDataset has it. Thread safety: what it gives may be called by several threads at
// once.
#pragma once

#include <peal/data/images/image_files.h>
#include <peal/data/shards/tar_sample.h>

namespace peal::data {

// x [3, H, W] f32, transformed and normalised, y an i64 scalar, undefined where the sample has no
// "cls". Errors: a sample without an image, a broken one, one that a transform refuses.
Decode decode_images(const ImageOptions& options = {});

}  // namespace peal::data
