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
  J_COLOR_SPACE inks = JCS_UNKNOWN;  // JCS_CMYK or JCS_YCCK, as Adobe writes them, with no black
  bool many_scans = false;           // 757 of them
};

// Each coefficient of each colour by itself, in four turns.
inline std::vector<jpeg_scan_info> scans_one_by_one() {
  std::vector<jpeg_scan_info> scans{{3, {0, 1, 2, 0}, 0, 0, 0, 0}};
  for (int colour = 0; colour < 3; ++colour) {
    for (int k = 1; k < 64; ++k) {
      scans.push_back({1, {colour, 0, 0, 0}, k, k, 0, 3});
      for (int low = 2; low >= 0; --low) {
        scans.push_back({1, {colour, 0, 0, 0}, k, k, low + 1, low});
      }
    }
  }
  return scans;
}

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
  const bool inks = form.inks != JCS_UNKNOWN;
  info.input_components = inks ? 4 : 3;
  info.in_color_space = inks ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&info);
  if (inks) jpeg_set_colorspace(&info, form.inks);
  if (form.grey) jpeg_set_colorspace(&info, JCS_GRAYSCALE);
  jpeg_set_quality(&info, form.quality, TRUE);
  if (!form.grey) {
    info.comp_info[0].h_samp_factor = form.across;
    info.comp_info[0].v_samp_factor = form.down;
  }
  if (form.progressive) jpeg_simple_progression(&info);
  const auto scans = scans_one_by_one();
  if (form.many_scans) {
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&info, TRUE);
  std::vector<std::uint8_t> line;
  for (std::int64_t y = 0; y < image.height; ++y) {
    auto* row = const_cast<std::uint8_t*>(image.row(y));
    if (inks) {
      line.clear();
      for (std::int64_t x = 0; x < image.width; ++x) {
        line.insert(line.end(), {row[3 * x], row[3 * x + 1], row[3 * x + 2], 255});
      }
      row = line.data();
    }
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::vector<std::uint8_t> bytes(made, made + size);
  std::free(made);
  return bytes;
}

// As libpng has them: PNG_COLOR_TYPE_GRAY, _GRAY_ALPHA, _PALETTE, _RGB or _RGB_ALPHA; bits a
// channel.
struct PngForm {
  int type = PNG_COLOR_TYPE_RGB, depth = 8;
  bool interlaced = false;
  bool transparent = false;  // says of one colour that it is (tRNS)
};

// The colour of entry i of the palettes here.
inline png_color palette_colour(int i) {
  const auto byte = [](int v) { return static_cast<png_byte>(v % 256); };
  return {byte(i * 37 + 5), byte(255 - i), byte(i * 101)};
}

// The rows of an image in that form, of its channels in order, the first ones where there are
// fewer.
inline std::vector<std::vector<std::uint8_t>> png_rows(const data::Image& image,
                                                       const PngForm& form) {
  const bool one = form.type == PNG_COLOR_TYPE_GRAY || form.type == PNG_COLOR_TYPE_PALETTE;
  const int channels = one                                      ? 1
                       : form.type == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                       : form.type == PNG_COLOR_TYPE_RGB        ? 3
                                                                : 4;
  std::vector<std::vector<std::uint8_t>> rows;
  for (std::int64_t y = 0; y < image.height; ++y) {
    auto& row = rows.emplace_back();
    int free = 0;  // bits of the last byte
    for (std::int64_t x = 0; x < image.width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const std::uint8_t value = c < 3 ? image.row(y)[3 * x + c] : 77;
        if (form.depth >= 8) row.push_back(value);
        if (form.depth == 16) row.push_back(value ^ 0x5a);
        if (form.depth >= 8) continue;
        if (free == 0) {
          row.push_back(0);
          free = 8;
        }
        free -= form.depth;
        row.back() = static_cast<std::uint8_t>(row.back() | (value >> (8 - form.depth)) << free);
      }
    }
  }
  return rows;
}

inline std::vector<std::uint8_t> png_of(const data::Image& image, const PngForm& form) {
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
               static_cast<png_uint_32>(image.height), form.depth, form.type,
               form.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  for (int i = 0; i < 1 << std::min(form.depth, 8); ++i) palette.push_back(palette_colour(i));
  if (form.type == PNG_COLOR_TYPE_PALETTE) {
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  }
  const png_byte alpha[]{0, 128};
  const png_color_16 colour{0, 1, 1, 1, 1};
  if (form.transparent) png_set_tRNS(png, info, alpha, 2, &colour);
  auto bytes_of_rows = png_rows(image, form);
  std::vector<png_bytep> rows;
  for (auto& row : bytes_of_rows) rows.push_back(row.data());
  png_set_rows(png, info, rows.data());
  png_write_png(png, info, PNG_TRANSFORM_IDENTITY, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

inline std::vector<std::uint8_t> png_of(const data::Image& image, bool interlaced = false) {
  return png_of(image, PngForm{.interlaced = interlaced});
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
