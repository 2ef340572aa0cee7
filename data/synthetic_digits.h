// SPDX-License-Identifier: Apache-2.0
// Digits that the program draws itself: 28x28 grey images of 0..9 in MNIST's format, for machines
// with no data set and for tests. Each digit is a few pen strokes (cubic Bezier curves) whose
// control points tremble, under a random affine map, with a pen of random width and ink, on a noisy
// ground.
//
// Invariant: an image is a pure function of (seed, index): no state, no file, and only IEEE's
// exactly rounded operations (no libm), so every machine draws the same bytes. Thread safety: pure
// functions.
#pragma once

#include <peal/data/image_dataset.h>

#include <array>
#include <cstdint>

namespace peal::data {

struct Digit {
  std::array<std::uint8_t, 28 * 28> pixels;  // row-major, 0 is the ground, 255 full ink
  std::int64_t label;                        // 0..9, random
};

Digit draw_digit(std::uint64_t seed, std::uint64_t index);

// The digits (seed, 0), ..., (seed, count - 1). The test set is one of another seed. Error: count <
// 0.
ImageDatasetRef synthetic_digits(std::int64_t count, std::uint64_t seed);

}  // namespace peal::data
