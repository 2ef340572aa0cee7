// SPDX-License-Identifier: Apache-2.0
// Transforms that draw nothing: for evaluation, and between those that do. Names, defaults and
// results are those of torchvision's on PIL images. Thread safety: immutable.
#pragma once

#include <peal/data/images/geometry.h>
#include <peal/data/images/resize.h>
#include <peal/data/images/transform.h>

#include <cstdint>
#include <optional>

namespace peal::data {

struct ResizeOptions {
  Interpolation interpolation = Interpolation::bilinear;
  std::optional<std::int64_t> max_size = {};  // of the longer side, where the shorter one is given
  // Lets a JPEG be decoded at 1/2, 1/4 or 1/8 of its size where twice as many pixels as asked for
  // remain. Much quicker for large images; close to the bytes of torchvision, but not the same.
  bool scaled_decode = false;
};

// The shorter side to so many pixels, the other in proportion; or to a height and width.
class Resize : public Transform {
 public:
  explicit Resize(std::int64_t shorter, const ResizeOptions& options = {});
  explicit Resize(ImageSize size, const ResizeOptions& options = {});
  // Of an image of that size.
  ImageSize size_of(ImageSize image) const;

  Image apply(Image image, Draw& draw) const override;
  Image open(EncodedImage& image, Draw& draw) const override;

 private:
  std::optional<std::int64_t> shorter_;
  ImageSize size_;
  ResizeOptions options_;
};

// The middle; where the image is smaller, with black beside it.
class CenterCrop : public Transform {
 public:
  explicit CenterCrop(std::int64_t size) : CenterCrop(ImageSize{size, size}) {}
  explicit CenterCrop(ImageSize size);
  Image apply(Image image, Draw& draw) const override;
  Image open(EncodedImage& image, Draw& draw) const override;

 private:
  ImageSize size_;
};

class Pad : public Transform {
 public:
  explicit Pad(std::int64_t all, Colour fill = {}, BorderMode mode = BorderMode::constant)
      : Pad(Border{all, all, all, all}, fill, mode) {}
  explicit Pad(const Border& border, Colour fill = {}, BorderMode mode = BorderMode::constant)
      : border_(border), fill_(fill), mode_(mode) {}
  Image apply(Image image, Draw& draw) const override;

 private:
  Border border_;
  Colour fill_;
  BorderMode mode_;
};

// Three equal channels.
class Grayscale : public Transform {
 public:
  Image apply(Image image, Draw& draw) const override;
};

}  // namespace peal::data
