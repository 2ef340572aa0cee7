// SPDX-License-Identifier: Apache-2.0
// Images, JPEG and PNG files of them, and tar archives, for tests and fuzzers to read.
#pragma once

#include <peal/data/formats/image.h>

#include <cstdio>  // jpeglib.h needs it

#include <jpeglib.h>
#include <png.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace peal::testing {

// Smooth, with a seed's own colours and a little texture.
inline data::Image drawn_image(std::int64_t height, std::int64_t width, unsigned seed = 1) {
  data::Image image(height, width);
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) {
        const std::int64_t wave = (y * (3 + c) + x * (5 - c) + seed * 40) % 512;
        const std::int64_t texture = (x * 7 + y * 13 + c * 29 + seed) % 11;
        image.row(y)[3 * x + c] =
            static_cast<std::uint8_t>(std::min<std::int64_t>(255, std::abs(wave - 255) + texture));
      }
    }
  }
  return image;
}

struct JpegForm {
  int quality = 90;
  int across = 2, down = 2;  // pixels of luminance to one of colour
  bool progressive = false, grey = false;
};

inline std::vector<std::uint8_t> jpeg_of(const data::Image& image, const JpegForm& form = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* made = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &made, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  if (form.grey) jpeg_set_colorspace(&info, JCS_GRAYSCALE);
  jpeg_set_quality(&info, form.quality, TRUE);
  if (!form.grey) {
    info.comp_info[0].h_samp_factor = form.across;
    info.comp_info[0].v_samp_factor = form.down;
  }
  if (form.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  for (std::int64_t y = 0; y < image.height; ++y) {
    auto* row = const_cast<std::uint8_t*>(image.row(y));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::vector<std::uint8_t> bytes(made, made + size);
  std::free(made);
  return bytes;
}

inline std::vector<std::uint8_t> png_of(const data::Image& image, bool interlaced = false) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::vector<std::uint8_t> bytes;
  png_set_write_fn(
      png, &bytes,
      [](png_structp to, png_bytep from, std::size_t count) {
        auto* all = static_cast<std::vector<std::uint8_t>*>(png_get_io_ptr(to));
        all->insert(all->end(), from, from + count);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(image.width),
               static_cast<png_uint_32>(image.height), 8, PNG_COLOR_TYPE_RGB,
               interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_bytep> rows;
  for (std::int64_t y = 0; y < image.height; ++y) {
    rows.push_back(const_cast<png_bytep>(image.row(y)));
  }
  png_set_rows(png, info, rows.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

// An entry of a tar archive with its padding; `prefix` makes the name prefix/name, `target` is what
// a link is to.
inline std::vector<std::uint8_t> tar_entry(const std::string& name, std::string_view content,
                                           char type = '0', const std::string& prefix = "",
                                           const std::string& target = "") {
  std::vector<std::uint8_t> entry(512);
  const auto put = [&](std::size_t at, std::string_view text) {
    std::copy(text.begin(), text.end(), entry.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(0, name.substr(0, 100));
  put(100, "0000644");
  char size[12];
  std::snprintf(size, sizeof size, "%011zo", content.size());
  put(124, size);
  put(148, "        ");
  entry[156] = static_cast<std::uint8_t>(type);
  put(157, target);
  put(257, std::string_view("ustar\00000", 8));
  put(345, prefix);
  unsigned sum = 0;
  for (const std::uint8_t byte : entry) sum += byte;
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", sum);
  put(148, digits);
  entry.insert(entry.end(), content.begin(), content.end());
  entry.resize((entry.size() + 511) / 512 * 512);
  return entry;
}

inline std::string_view text_of(const std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace peal::testing
