// SPDX-License-Identifier: Apache-2.0
// Transforms that draw, as torchvision's: names, defaults, and from which distributions. Drawing
// and doing are apart: what is drawn is a small value that can be looked at, and what is done with
// it is a pure function (geometry.h, colour.h, resize.h).
//
//   data::Compose{data::RandomResizedCrop(224), data::RandomHorizontalFlip(),
//                 data::ColorJitter({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4}),
//                 data::RandomErasing()}
//
// Thread safety: immutable.
#pragma once

#include <peal/data/images/transforms.h>

#include <array>
#include <cstdint>
#include <optional>

namespace peal::data {

struct Range {
  double low = 0, high = 0;
};

struct ResizedCropOptions {
  Range scale{0.08, 1.0};             // the box's share of the area
  Range ratio{3.0 / 4.0, 4.0 / 3.0};  // of width to height
  Interpolation interpolation = Interpolation::bilinear;
  // As of ResizeOptions, but for as many pixels as asked for, not twice as many.
  bool scaled_decode = false;
};

// A box of random area and shape, resized: the usual start of training on photographs. Of a JPEG
// only the box is decoded.
class RandomResizedCrop : public Transform {
 public:
  explicit RandomResizedCrop(std::int64_t size, const ResizedCropOptions& options = {})
      : RandomResizedCrop(ImageSize{size, size}, options) {}
  explicit RandomResizedCrop(ImageSize size, const ResizedCropOptions& options = {});
  // Ten attempts, then the largest box in the middle whose ratio is in range.
  Box box_of(ImageSize image, Draw& draw) const;

  Image apply(Image image, Draw& draw) const override;
  Image open(EncodedImage& image, Draw& draw) const override;

 private:
  ImageSize size_;
  ResizedCropOptions options_;
};

struct CropOptions {
  std::int64_t padding = 0;  // on all sides, first
  Colour fill = {};
  BorderMode mode = BorderMode::constant;
};

// A box of this size anywhere. Error: an image that is smaller, padded.
class RandomCrop : public Transform {
 public:
  explicit RandomCrop(std::int64_t size, const CropOptions& options = {})
      : RandomCrop(ImageSize{size, size}, options) {}
  explicit RandomCrop(ImageSize size, const CropOptions& options = {});
  Box box_of(ImageSize padded, Draw& draw) const;
  Image apply(Image image, Draw& draw) const override;

 private:
  ImageSize size_;
  CropOptions options_;
};

class RandomHorizontalFlip : public Transform {
 public:
  explicit RandomHorizontalFlip(double p = 0.5);
  Image apply(Image image, Draw& draw) const override;

 private:
  float p_;
};

class RandomVerticalFlip : public Transform {
 public:
  explicit RandomVerticalFlip(double p = 0.5);
  Image apply(Image image, Draw& draw) const override;

 private:
  float p_;
};

struct RotationOptions {
  Interpolation interpolation = Interpolation::nearest;
  bool expand = false;
  Colour fill = {};
};

// By an angle of -degrees to degrees.
class RandomRotation : public Transform {
 public:
  explicit RandomRotation(double degrees, const RotationOptions& options = {})
      : RandomRotation(Range{-degrees, degrees}, options) {}
  explicit RandomRotation(Range degrees, const RotationOptions& options = {});
  double angle_of(Draw& draw) const;
  Image apply(Image image, Draw& draw) const override;

 private:
  Range degrees_;
  RotationOptions options_;
};

// How far each may go from the image as it is: factors of 1 - x to 1 + x, never below 0; of hue
// shares of -x to x, at most 0.5.
struct JitterStrength {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
};

class ColorJitter : public Transform {
 public:
  explicit ColorJitter(const JitterStrength& strength);
  // Factors where their strength is above 0, and in which order they come (brightness 0, contrast
  // 1, saturation 2, hue 3).
  struct Drawn {
    std::array<int, 4> order{0, 1, 2, 3};
    std::array<std::optional<double>, 4> factor;
  };
  Drawn drawn(Draw& draw) const;
  static Image apply(Image image, const Drawn& drawn);
  Image apply(Image image, Draw& draw) const override;

 private:
  JitterStrength strength_;
};

struct ErasingOptions {
  double p = 0.5;
  Range scale{0.02, 0.33};  // the box's share of the area
  Range ratio{0.3, 3.3};    // of height to width
  // ImageNet's mean colour, which is about 0 once it is normalised, as it is where torchvision
  // erases: after Normalize, with 0. A set with another mean gives its own.
  Colour fill{124, 116, 104};
};

// A box in one colour.
class RandomErasing : public Transform {
 public:
  explicit RandomErasing(const ErasingOptions& options = {});
  // Nothing with probability 1 - p, or where ten attempts do not fit.
  std::optional<Box> box_of(ImageSize image, Draw& draw) const;
  Image apply(Image image, Draw& draw) const override;

 private:
  ErasingOptions options_;
};

}  // namespace peal::data
