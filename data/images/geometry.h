// SPDX-License-Identifier: Apache-2.0
// Where pixels go: flips, borders, crops, rotations, shears, erased boxes, all of parameters that
// are given (random_transforms.h and auto_augment.h draw them). Results are those of torchvision on
// PIL images, to the byte. Thread safety: pure.
#pragma once

#include <peal/data/formats/encoded_image.h>
#include <peal/data/images/resize.h>

#include <array>
#include <cstdint>
#include <optional>

namespace peal::data {

// A colour, by channel.
using Colour = std::array<std::uint8_t, 3>;

// Left becomes right; upper becomes lower.
Image hflipped(Image image);
Image vflipped(Image image);

struct Border {
  std::int64_t left = 0, top = 0, right = 0, bottom = 0;
};
// How the border is filled: with a colour, with the nearest pixel, or with the image mirrored, with
// its outermost pixels once (reflect) or twice (symmetric).
enum class BorderMode : std::uint8_t { constant, edge, reflect, symmetric };
// Errors: a border below 0, or mirrored one that is wider than the image, a result of more than
// most_pixels.
Image padded(const Image& image, const Border& border, Colour fill = {},
             BorderMode mode = BorderMode::constant);

// The box of this size in the middle; what the image lacks on a side is black.
Image center_cropped(const Image& image, ImageSize size);
// Its place, where the image is at least as large: halves go to the even number, as in Python.
Box center_box(ImageSize image, ImageSize size);

// About its middle, counterclockwise; with `expand` large enough to hold all of it. What comes from
// outside has the colour `fill`. Errors: another interpolation than nearest and bilinear, a result
// of more than most_pixels.
Image rotated(const Image& image, double degrees, Interpolation how = Interpolation::nearest,
              bool expand = false, Colour fill = {});

struct AffineOptions {
  Interpolation interpolation = Interpolation::nearest;
  Colour fill = {};                                  // of what comes from outside
  std::optional<std::array<double, 2>> center = {};  // x and y; none: the image's middle
};
// Turned clockwise about the centre by `degrees`, enlarged by `scale`, sheared by angles
// along x and y, and moved by pixels to the right and down; the size stays (torchvision: affine).
// Errors: another interpolation than nearest and bilinear, a scale that is not above 0.
Image affine(const Image& image, double degrees, std::array<double, 2> translate, double scale,
             std::array<double, 2> shear, const AffineOptions& options = {});

// The box in one colour. Error: a box outside of the image.
Image erased(Image image, const Box& box, Colour fill = {});

}  // namespace peal::data
