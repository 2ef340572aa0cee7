// SPDX-License-Identifier: Apache-2.0
// An image in memory: bytes, row by row, the channels of a pixel beside each other (height, width,
// channels), as decoders give them and as PIL and torchvision have them. Thread safety: a value.
#pragma once

#include <peal/autograd/core/error.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace peal::data {

struct ImageSize {
  std::int64_t height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};

// A part of an image, in pixels from its upper left corner.
struct Box {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
  bool operator==(const Box&) const = default;
};

struct Image {
  std::int64_t height = 0, width = 0, channels = 3;
  std::vector<std::uint8_t> pixels;  // height * width * channels

  Image() = default;
  // Black.
  Image(std::int64_t of_height, std::int64_t of_width, std::int64_t of_channels = 3)
      : height(of_height),
        width(of_width),
        channels(of_channels),
        pixels(static_cast<std::size_t>(of_height * of_width * of_channels)) {}

  ImageSize size() const { return {height, width}; }
  std::int64_t stride() const { return width * channels; }
  const std::uint8_t* row(std::int64_t y) const { return pixels.data() + y * stride(); }
  std::uint8_t* row(std::int64_t y) { return pixels.data() + y * stride(); }
  bool operator==(const Image&) const = default;
};

// What an image may have at most unless told otherwise: a header of a few bytes can ask for any
// memory. PIL warns from there on.
inline constexpr std::int64_t most_pixels = 89'478'485;

inline void check_pixels(ImageSize size, std::int64_t most, std::string_view name) {
  PEAL_CHECK(size.height >= 1 && size.width >= 1, "[data] ", name,
             ": expected an image of at least 1 x 1 pixels, its header says ", size.height, " x ",
             size.width);
  PEAL_CHECK(size.height <= most / size.width, "[data] ", name, ": expected at most ", most,
             " pixels, its header says ", size.height, " x ", size.width,
             "; where that is meant, allow it (max_pixels)");
}

inline void check_box(const Box& box, ImageSize size, std::string_view name) {
  PEAL_CHECK(box.top >= 0 && box.left >= 0 && box.height >= 1 && box.width >= 1 &&
                 box.top <= size.height - box.height && box.left <= size.width - box.width,
             "[data] ", name, ": expected a box inside of ", size.height, " x ", size.width,
             " pixels, got ", box.height, " x ", box.width, " at row ", box.top, ", column ",
             box.left);
}

}  // namespace peal::data
