// SPDX-License-Identifier: Apache-2.0
// Pixels: bytes of images as the floats that a model sees, (p / 255 - mean) / std. Hot enough to
// have a kernel for each vector level (autograd/core/cpu_level.h): by a table of 256 values, one
// load a pixel, batches took two and a half times as long. Thread safety: pure.
#pragma once

#include <cstdint>

namespace peal::data {

// to[i] of pixels[i]; neither overlaps the other. Quotients are rounded correctly, or, of levels
// with a fused multiply-add, made of that: nearly always to the same bits, but whoever needs them
// compares all 256 values first.
using PixelKernel = void (*)(const std::uint8_t* pixels, std::int64_t count, float mean, float std,
                             float* to);

// The same of pixels of three channels beside each other, each by its own mean and std, to three
// planes of `count` pixels one after the other.
using RgbKernel = void (*)(const std::uint8_t* pixels, std::int64_t count, const float* mean,
                           const float* std, float* to);

// Of the current level.
PixelKernel pixel_kernel();
RgbKernel rgb_kernel();

}  // namespace peal::data
