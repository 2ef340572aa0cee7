// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/encoded_image.h>
#include <peal/data/formats/png.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace peal::data {

EncodedImage::EncodedImage(std::span<const std::uint8_t> content, std::string name,
                           std::int64_t max_pixels)
    : content_(content), name_(std::move(name)), max_pixels_(max_pixels) {
  is_jpeg_ = starts_as_jpeg(content);
  PEAL_CHECK(is_jpeg_ || starts_as_png(content), "[data] ", name_,
             ": expected a JPEG or PNG image, got ", content.size(), " bytes that are neither",
             content.empty() ? " (an empty file)" : "");
  if (is_jpeg_) {
    jpeg_.emplace(content, name_, max_pixels);
    size_ = jpeg_->size();
  } else {
    size_ = png_size(content, name_, max_pixels);
  }
}

Image EncodedImage::decode(const std::optional<Box>& box) {
  if (box) check_box(*box, size_, name_);
  if (!is_jpeg_) {
    Image whole = decode_png(content_, name_, max_pixels_);
    return box ? cropped(whole, *box) : whole;
  }
  if (!jpeg_) jpeg_.emplace(content_, name_, max_pixels_);
  Image image = jpeg_->read(box);
  jpeg_.reset();
  return image;
}

EncodedImage::Part EncodedImage::decode_about(const Box& box, ImageSize least) {
  check_box(box, size_, name_);
  int eighths = 8;
  while (is_jpeg_ && eighths > 1 && box.height * eighths / 16 >= least.height &&
         box.width * eighths / 16 >= least.width) {
    eighths /= 2;
  }
  if (eighths == 8) {
    return {decode(box), 0, 0, static_cast<double>(box.height), static_cast<double>(box.width)};
  }
  if (!jpeg_) jpeg_.emplace(content_, name_, max_pixels_);
  const ImageSize whole = jpeg_->size(eighths);
  const double scale = eighths / 8.0;
  const auto end = [&](std::int64_t at, std::int64_t limit) {
    return std::min((at * eighths + 7) / 8, limit);
  };
  Box part{box.top * eighths / 8, box.left * eighths / 8, 0, 0};
  part.height = end(box.top + box.height, whole.height) - part.top;
  part.width = end(box.left + box.width, whole.width) - part.left;
  Part made{jpeg_->read(part, eighths), 0, 0, 0, 0};
  jpeg_.reset();
  made.top = static_cast<double>(box.top) * scale - static_cast<double>(part.top);
  made.left = static_cast<double>(box.left) * scale - static_cast<double>(part.left);
  made.height = static_cast<double>(box.height) * scale;
  made.width = static_cast<double>(box.width) * scale;
  return made;
}

Image decode_image(std::span<const std::uint8_t> content, const std::string& name,
                   std::int64_t max_pixels) {
  return EncodedImage(content, name, max_pixels).decode();
}

void check_file_size(std::uint64_t bytes, std::int64_t max_pixels, std::string_view name) {
  constexpr std::uint64_t beside = std::uint64_t{64} << 20;
  PEAL_CHECK(bytes <= beside || (bytes - beside) / 16 <= static_cast<std::uint64_t>(max_pixels),
             "[data] ", name, ": expected a file of an image of at most ", max_pixels,
             " pixels, got ", bytes, " bytes; where that is meant, allow it (max_pixels)");
}

Image cropped(const Image& image, const Box& box) {
  check_box(box, image.size(), "an image");
  Image part(box.height, box.width, image.channels);
  for (std::int64_t y = 0; y < box.height; ++y) {
    std::memcpy(part.row(y), image.row(box.top + y) + box.left * image.channels,
                static_cast<std::size_t>(part.stride()));
  }
  return part;
}

}  // namespace peal::data
