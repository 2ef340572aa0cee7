// SPDX-License-Identifier: Apache-2.0
// Grids of images, and files of them, to look at what a model makes (torchvision.utils: make_grid,
// save_image), with its options and defaults:
//
//   data::save_image(generator(noise), "samples.png", {.normalize = true});
//
// Thread safety: free functions without state.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

namespace peal::data {

struct GridOptions {
  std::int64_t nrow = 8;     // images in a row
  std::int64_t padding = 2;  // pixels around each
  // Values are cut to a range and then go from 0 to 1: value_range (low, high), or from the
  // smallest to the largest that there are; of each image by itself where scale_each.
  bool normalize = false;
  std::optional<std::pair<double, double>> value_range{};
  bool scale_each = false;
  double pad_value = 0;
};

// images f32 [N, C, H, W], [C, H, W] or [H, W], of any device, where C is 1 or 3 -> f32 [3, h, w]
// on the CPU, row after row; one image alone stays as it is. Not recorded. Errors: another type or
// shape, no image, nrow < 1, padding < 0.
Tensor make_grid(const Tensor& images, const GridOptions& options = {});

// The grid as a PNG of 8 bits: what is 0 is black and 1 is white, the nearest of 256 steps, and
// what lies beyond is cut (a NaN to 0). Errors: as above, a path that does not end with .png, and
// what the system says, with the path; the file is whole, or as it was.
void save_image(const Tensor& images, const std::filesystem::path& path,
                const GridOptions& options = {});

}  // namespace peal::data
