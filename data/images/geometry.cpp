// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/images/geometry.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace peal::data {
namespace {

// Of what lies at `at` outside of `size` pixels.
std::int64_t mirrored(std::int64_t at, std::int64_t size, BorderMode mode) {
  if (mode == BorderMode::edge) return std::clamp<std::int64_t>(at, 0, size - 1);
  const std::int64_t twice = mode == BorderMode::symmetric ? 1 : 0;
  if (at < 0) return -at - twice;
  return at < size ? at : 2 * size - 2 + twice - at;
}

// To the even number, as Python's round() does.
std::int64_t half(std::int64_t difference) {
  return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(difference) / 2));
}

}  // namespace

Image hflipped(Image image) {
  for (std::int64_t y = 0; y < image.height; ++y) {
    std::uint8_t* left = image.row(y);
    std::uint8_t* right = left + image.stride() - image.channels;
    for (; left < right; left += image.channels, right -= image.channels) {
      std::swap_ranges(left, left + image.channels, right);
    }
  }
  return image;
}

Image vflipped(Image image) {
  for (std::int64_t y = 0; y < image.height / 2; ++y) {
    std::swap_ranges(image.row(y), image.row(y) + image.stride(), image.row(image.height - 1 - y));
  }
  return image;
}

Image padded(const Image& image, const Border& border, Colour fill, BorderMode mode) {
  PEAL_CHECK(image.channels == 3, "[data] pad: expected an image of 3 channels, got ",
             image.channels);
  const auto [left, top, right, bottom] = border;
  const auto [least, most] = std::minmax({left, top, right, bottom});
  PEAL_CHECK(least >= 0, "[data] pad: expected a border of at least 0, got ", least);
  PEAL_CHECK(most <= most_pixels, "[data] pad: expected a border of at most ", most_pixels,
             ", got ", most);
  const std::int64_t once = mode == BorderMode::reflect ? 1 : 0;
  PEAL_CHECK(mode == BorderMode::constant || mode == BorderMode::edge ||
                 (std::max(left, right) + once <= image.width &&
                  std::max(top, bottom) + once <= image.height),
             "[data] pad: a border of ", most, " pixels cannot mirror an image of ", image.height,
             " x ", image.width);
  const ImageSize size{image.height + top + bottom, image.width + left + right};
  PEAL_CHECK(size.width == 0 || size.height <= most_pixels / size.width,
             "[data] pad: expected a result of at most ", most_pixels, " pixels, got ", size.height,
             " x ", size.width, "; give a smaller border");
  Image made(size.height, size.width);
  for (std::int64_t y = 0; y < made.height; ++y) {
    std::uint8_t* to = made.row(y);
    if (mode == BorderMode::constant) {
      const bool inside = y >= top && y < top + image.height;
      for (std::int64_t x = 0; x < made.width; ++x, to += 3) {
        if (inside && x == left) {
          std::memcpy(to, image.row(y - top), static_cast<std::size_t>(image.stride()));
          to += 3 * (image.width - 1);
          x += image.width - 1;
        } else {
          std::copy_n(fill.begin(), 3, to);
        }
      }
      continue;
    }
    const std::uint8_t* from = image.row(mirrored(y - top, image.height, mode));
    for (std::int64_t x = 0; x < made.width; ++x, to += 3) {
      std::copy_n(from + 3 * mirrored(x - left, image.width, mode), 3, to);
    }
  }
  return made;
}

Box center_box(ImageSize image, ImageSize size) {
  return {half(image.height - size.height), half(image.width - size.width), size.height,
          size.width};
}

Image center_cropped(const Image& image, ImageSize size) {
  const std::int64_t down = std::max<std::int64_t>(0, size.height - image.height);
  const std::int64_t across = std::max<std::int64_t>(0, size.width - image.width);
  if (down == 0 && across == 0) return cropped(image, center_box(image.size(), size));
  const Image framed = padded(image, {across / 2, down / 2, (across + 1) / 2, (down + 1) / 2});
  return cropped(framed, center_box(framed.size(), size));
}

Image erased(Image image, const Box& box, Colour fill) {
  check_box(box, image.size(), "erase");
  PEAL_CHECK(image.channels == 3, "[data] erase: expected an image of 3 channels, got ",
             image.channels);
  for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
    std::uint8_t* to = image.row(y) + 3 * box.left;
    for (std::int64_t x = 0; x < box.width; ++x, to += 3) std::copy_n(fill.begin(), 3, to);
  }
  return image;
}

}  // namespace peal::data
