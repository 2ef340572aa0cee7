// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/images/colour.h>
#include <peal/data/images/transforms.h>

#include <utility>

namespace peal::data {

Resize::Resize(std::int64_t shorter, const ResizeOptions& options)
    : shorter_(shorter), options_(options) {
  size_by_shorter({1, 1}, shorter, options.max_size);
}

Resize::Resize(ImageSize size, const ResizeOptions& options) : size_(size), options_(options) {
  check_side("Resize", size);
  PEAL_CHECK(!options.max_size,
             "[data] Resize: max_size is for one number, the shorter side, not for a height and "
             "width");
}

ImageSize Resize::size_of(ImageSize image) const {
  return shorter_ ? size_by_shorter(image, *shorter_, options_.max_size) : size_;
}

Image Resize::apply(Image image, Draw&) const {
  const ImageSize size = size_of(image.size());
  if (size == image.size()) return image;
  return resized(image, size, options_.interpolation);
}

Image Resize::open(EncodedImage& image, Draw& draw) const {
  const ImageSize from = image.size(), to = size_of(from);
  if (!options_.scaled_decode) return apply(image.decode(), draw);
  const auto part =
      image.decode_about({0, 0, from.height, from.width}, {2 * to.height, 2 * to.width});
  return resized(part.image, {part.top, part.left, part.height, part.width}, to,
                 options_.interpolation);
}

CenterCrop::CenterCrop(ImageSize size) : size_(size) { check_side("CenterCrop", size); }

Image CenterCrop::apply(Image image, Draw&) const { return center_cropped(image, size_); }

Image CenterCrop::open(EncodedImage& image, Draw& draw) const {
  const ImageSize whole = image.size();
  if (whole.height < size_.height || whole.width < size_.width) {
    return apply(image.decode(), draw);
  }
  return image.decode(center_box(whole, size_));
}

Image Pad::apply(Image image, Draw&) const { return padded(image, border_, fill_, mode_); }

Image Grayscale::apply(Image image, Draw&) const { return greyscale(std::move(image)); }

}  // namespace peal::data
