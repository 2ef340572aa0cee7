// SPDX-License-Identifier: Apache-2.0
// Resizing, as PIL does it, to the byte (and so as torchvision's Resize of PIL images): first along
// rows, then across them, each in fixed point; where an image shrinks the filter widens with it, so
// that nothing is left out (antialiasing). Thread safety: pure.
#pragma once

#include <peal/data/formats/image.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace peal::data {

enum class Interpolation : std::uint8_t { nearest, bilinear, bicubic, lanczos, box, hamming };

// A part of an image between its pixels' edges.
struct RealBox {
  double top = 0, left = 0, height = 0, width = 0;
};

// The image, or a box of it, at another size. Errors: a size of 0, a box that is not inside of the
// image, other than three channels.
Image resized(const Image& image, ImageSize size, Interpolation how = Interpolation::bilinear);
Image resized(const Image& image, const RealBox& box, ImageSize size,
              Interpolation how = Interpolation::bilinear);

// Error for a size below 1 x 1, which names the transform.
void check_side(std::string_view who, ImageSize size);

// The size whose shorter side is `shorter` and whose longer one is in proportion, cut to a whole
// number; then with `longest`, where the longer side is above that, both in proportion smaller
// (torchvision's Resize of one number).
ImageSize size_by_shorter(ImageSize size, std::int64_t shorter,
                          std::optional<std::int64_t> longest = {});

}  // namespace peal::data
