// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/jump.h>
#include <peal/data/formats/png.h>

#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace peal::data {
namespace {

// Where libpng's errors go.
struct PngFailure {
  std::jmp_buf back{};
  std::array<char, 200> words{};  // of the error
};

struct PngState : PngFailure {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::uint8_t> rest;

  ~PngState() { png_destroy_read_struct(&png, &info, nullptr); }
};

struct PngWriter : PngFailure {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::vector<std::uint8_t> bytes;

  ~PngWriter() { png_destroy_write_struct(&png, &info); }
};

[[noreturn]] void png_error_words(png_structp png, png_const_charp words) {
  auto* state = static_cast<PngFailure*>(png_get_error_ptr(png));
  std::snprintf(state->words.data(), state->words.size(), "%s", words);
  std::longjmp(state->back, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, std::size_t count) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (count > state->rest.size()) png_error_words(png, "the file is truncated");
  std::copy_n(state->rest.data(), count, to);
  state->rest = state->rest.subspan(count);
}

void write_bytes(png_structp png, png_bytep from, std::size_t count) {
  auto* state = static_cast<PngWriter*>(png_get_io_ptr(png));
  bool full = false;
  try {
    state->bytes.insert(state->bytes.end(), from, from + count);
  } catch (const std::bad_alloc&) {
    full = true;
  }
  if (full) png_error_words(png, "out of memory");
}

}  // namespace

bool starts_as_png(std::span<const std::uint8_t> content) {
  return content.size() >= 8 && png_sig_cmp(content.data(), 0, 8) == 0;
}

ImageSize png_size(std::span<const std::uint8_t> content, std::string_view name,
                   std::int64_t max_pixels) {
  PEAL_CHECK(starts_as_png(content) && content.size() >= 24 &&
                 std::memcmp(content.data() + 12, "IHDR", 4) == 0,
             "[data] ", name,
             ": cannot be read as PNG: it has no whole header; copy or download "
             "the file again, or leave it out");
  const auto number = [&](std::size_t at) {
    return std::int64_t{content[at]} << 24 | std::int64_t{content[at + 1]} << 16 |
           std::int64_t{content[at + 2]} << 8 | std::int64_t{content[at + 3]};
  };
  const ImageSize size{number(20), number(16)};
  check_pixels(size, max_pixels, name);
  return size;
}

Image decode_png(std::span<const std::uint8_t> content, std::string_view name,
                 std::int64_t max_pixels) {
  const ImageSize size = png_size(content, name, max_pixels);
  PngState state;
  state.rest = content;
  state.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, static_cast<PngFailure*>(&state),
                                     &png_error_words, &ignore_warning);
  PEAL_CHECK(state.png != nullptr, "[data] ", name, ": libpng does not start: out of memory");
  int passes = 0;
  std::size_t row_bytes = 0;
  bool good = survives(state, [&] {
    state.info = png_create_info_struct(state.png);
    if (state.info == nullptr) png_error_words(state.png, "out of memory");
    png_set_read_fn(state.png, &state, &read_bytes);
    png_set_user_limits(state.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // max_pixels holds
    png_read_info(state.png, state.info);
    png_set_palette_to_rgb(state.png);
    png_set_expand_gray_1_2_4_to_8(state.png);
    png_set_gray_to_rgb(state.png);
    png_set_strip_16(state.png);
    png_set_strip_alpha(state.png);
    passes = png_set_interlace_handling(state.png);
    png_read_update_info(state.png, state.info);
    row_bytes = png_get_rowbytes(state.png, state.info);
  });
  if (!good) fail_with_words(state, name, "PNG");
  Image image(size.height, size.width);
  PEAL_CHECK(png_get_image_height(state.png, state.info) == size.height &&
                 row_bytes == static_cast<std::size_t>(image.stride()),
             "[data] ", name, ": libpng gives rows of ", row_bytes, " bytes, expected ",
             image.stride());
  good = survives(state, [&] {
    for (int pass = 0; pass < passes; ++pass) {
      for (std::int64_t y = 0; y < image.height; ++y)
        png_read_row(state.png, image.row(y), nullptr);
    }
  });
  if (!good) fail_with_words(state, name, "PNG");
  return image;
}

std::vector<std::uint8_t> encode_png(const Image& image, std::string_view name) {
  PEAL_CHECK((image.channels == 1 || image.channels == 3) && !image.pixels.empty(), "[data] ", name,
             ": a PNG is written of one or three channels and at least one pixel, got ",
             image.height, " x ", image.width, " of ", image.channels);
  PngWriter state;
  state.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, static_cast<PngFailure*>(&state),
                                      &png_error_words, &ignore_warning);
  PEAL_CHECK(state.png != nullptr, "[data] ", name, ": libpng does not start: out of memory");
  const bool good = survives(state, [&] {
    state.info = png_create_info_struct(state.png);
    if (state.info == nullptr) png_error_words(state.png, "out of memory");
    png_set_write_fn(state.png, &state, &write_bytes, nullptr);
    png_set_IHDR(state.png, state.info, static_cast<png_uint_32>(image.width),
                 static_cast<png_uint_32>(image.height), 8,
                 image.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(state.png, state.info);
    for (std::int64_t y = 0; y < image.height; ++y) png_write_row(state.png, image.row(y));
    png_write_end(state.png, state.info);
  });
  PEAL_CHECK(good, "[data] ", name, ": cannot be written as PNG: ", state.words.data());
  return std::move(state.bytes);
}

}  // namespace peal::data
