// SPDX-License-Identifier: Apache-2.0
// An image as it lies in a file, JPEG or PNG (told apart by content, not by name), of which a
// transform asks for what it needs: all of it, a box, or a box at about some size. Of a JPEG the
// rest is not decoded. Thread safety: none; one image, one thread. REQUIRES: the content outlives
// it.
#pragma once

#include <peal/data/formats/image.h>
#include <peal/data/formats/jpeg.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace peal::data {

class EncodedImage {
 public:
  // Reads the header. `name` is what errors call the content. Errors: neither JPEG nor PNG, a
  // broken header, more than max_pixels.
  EncodedImage(std::span<const std::uint8_t> content, std::string name,
               std::int64_t max_pixels = most_pixels);

  const std::string& name() const { return name_; }
  ImageSize size() const { return size_; }
  // RGB, as PIL's convert("RGB"). Errors: a box outside of it, a broken or truncated file.
  Image decode(const std::optional<Box>& box = {});

  // A box, perhaps at a smaller scale: `image` has all of it, at the place that the others say, in
  // pixels of it.
  struct Part {
    Image image;
    double top = 0, left = 0, height = 0, width = 0;
  };
  // At 1/2, 1/4 or 1/8 of its size, where that is a JPEG and at least `least` of the box remain.
  // Much quicker than decode(); not the same bytes as decode() and a resize.
  Part decode_about(const Box& box, ImageSize least);

 private:
  std::span<const std::uint8_t> content_;
  std::string name_;
  std::int64_t max_pixels_;
  std::optional<JpegReader> jpeg_;  // that has read the header and nothing else
  bool is_jpeg_ = false;
  ImageSize size_;
};

// The same at once. Errors as above.
Image decode_image(std::span<const std::uint8_t> content, const std::string& name,
                   std::int64_t max_pixels = most_pixels);

// Before a file is read: error for more bytes than an image of max_pixels can have, however badly
// it is packed and whatever else lies in it.
void check_file_size(std::uint64_t bytes, std::int64_t max_pixels, std::string_view name);

// A part of it. Error: a box outside of it.
Image cropped(const Image& image, const Box& box);

}  // namespace peal::data
