// SPDX-License-Identifier: Apache-2.0
// Images and their classes in memory: pixels as bytes, 0..255, turned into normalised f32 when a
// batch is made, with the results of torchvision's ToTensor and Normalize to the bit: (pixel / 255
// - mean) / std, all in f32. A byte has 256 values: where the kernel of pixels.h would give others,
// a table has them. Invariant: every class is in 0..classes-1, and there are as many labels as
// images. Thread safety: immutable.
#pragma once

#include <peal/data/dataset.h>
#include <peal/data/pixels.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace peal::data {

// Of pixels scaled to 0..1, over the training set.
struct Normalisation {
  float mean = 0, std = 1;
};
inline constexpr Normalisation mnist_normalisation{0.1307f, 0.3081f};
inline constexpr Normalisation fashion_mnist_normalisation{0.2860f, 0.3530f};
inline constexpr Normalisation synthetic_digits_normalisation{0.1221f, 0.2269f};

class ImageDataset : public Dataset {
 public:
  // `image` is [C, H, W]; `pixels` holds the images one after the other, each in this order. `name`
  // is what errors call the set. Errors: counts that differ, a class outside of 0..classes-1, std
  // of 0.
  ImageDataset(std::string name, const Shape& image, std::vector<std::uint8_t> pixels,
               std::vector<std::int64_t> labels, std::int64_t classes, Normalisation normalisation);

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  // x [B, C, H, W] f32, y [B] i64.
  Batch get(std::span<const std::int64_t> indices) const override;

  const std::string& name() const { return name_; }
  const Shape& image() const { return image_; }
  std::int64_t classes() const { return classes_; }
  // The bytes of one image, and its class.
  std::span<const std::uint8_t> pixels(std::int64_t index) const;
  std::int64_t label(std::int64_t index) const;

 private:
  void check_index(std::int64_t index) const;

  std::string name_;
  Shape image_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::int64_t> labels_;
  std::int64_t classes_;
  Normalisation normalisation_;
  std::array<float, 256> normalised_;  // by pixel
  PixelKernel kernel_;                 // null where it is not this, bit for bit
};

using ImageDatasetRef = std::shared_ptr<const ImageDataset>;

}  // namespace peal::data
