// SPDX-License-Identifier: Apache-2.0
// PNG, read by libpng into RGB as PIL's convert("RGB") has it: grey and palettes become three
// channels, transparency is left out (nothing is blended), of 16 bits a channel the upper 8 count
// (of grey, too, where PIL cuts off at 255 instead). Invariant: whatever the bytes, an image of the
// header's size or an Error that has the name. And written: three channels of 8 bits, or one of
// grey. Thread safety: free functions without state.
#pragma once

#include <peal/data/formats/image.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace peal::data {

bool starts_as_png(std::span<const std::uint8_t> content);

// Of the header. Error: no whole header, more than max_pixels.
ImageSize png_size(std::span<const std::uint8_t> content, std::string_view name,
                   std::int64_t max_pixels = most_pixels);

// Errors: as of png_size, a broken or truncated file.
Image decode_png(std::span<const std::uint8_t> content, std::string_view name,
                 std::int64_t max_pixels = most_pixels);

// The bytes of a file that decode_png gives the image back from, of which one channel becomes three
// equal ones. Error: other than one or three channels, no pixel, and what libpng says.
std::vector<std::uint8_t> encode_png(const Image& image, std::string_view name);

}  // namespace peal::data
