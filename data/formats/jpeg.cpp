// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/formats/jpeg.h>
#include <peal/data/formats/jump.h>

#include <cstdio>  // jpeglib.h needs it

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <utility>

#ifndef LIBJPEG_TURBO_VERSION
#error "peal reads JPEG with libjpeg-turbo (Debian: libjpeg62-turbo-dev), not with another libjpeg"
#endif

namespace peal::data {

struct JpegReader::State {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf back{};
  std::array<char, JMSG_LENGTH_MAX> words{};  // of the error
  bool made = false;

  ~State() {
    if (made) jpeg_destroy_decompress(&info);
  }
};

namespace {

// A progressive image may have as many scans as it likes, each as costly as a whole image.
constexpr int most_scans = 500;

template <class State>
[[noreturn]] void give_up(j_common_ptr info) {
  auto* state = static_cast<State*>(info->client_data);
  info->err->format_message(info, state->words.data());
  std::longjmp(state->back, 1);
}

// Warnings are for damage that libjpeg mends; but what it makes up at the end of a file is none.
template <class State>
void note(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) give_up<State>(info);
}

void no_output(j_common_ptr) {}

template <class State>
void count_scans(j_common_ptr info) {
  auto* state = static_cast<State*>(info->client_data);
  if (state->info.input_scan_number <= most_scans) return;
  std::snprintf(state->words.data(), state->words.size(), "more than %d scans", most_scans);
  std::longjmp(state->back, 1);
}

// Inks of Adobe's convention (255 is none of it) as PIL makes colours of them.
void rgb_of_inks(const std::uint8_t* inks, std::int64_t count, std::uint8_t* rgb) {
  for (std::int64_t i = 0; i < count; ++i, inks += 4) {
    const int white = inks[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - inks[c]) * white + 128;
      *rgb++ = static_cast<std::uint8_t>(std::max(0, white - (((product >> 8) + product) >> 8)));
    }
  }
}

}  // namespace

bool starts_as_jpeg(std::span<const std::uint8_t> content) {
  return content.size() >= 3 && content[0] == 0xff && content[1] == 0xd8 && content[2] == 0xff;
}

JpegReader::JpegReader(std::span<const std::uint8_t> content, std::string name,
                       std::int64_t max_pixels)
    : name_(std::move(name)), state_(std::make_unique<State>()) {
  State& state = *state_;
  jpeg_decompress_struct& info = state.info;
  info.err = jpeg_std_error(&state.errors);
  info.client_data = &state;
  state.errors.error_exit = &give_up<State>;
  state.errors.emit_message = &note<State>;
  state.errors.output_message = &no_output;
  state.progress.progress_monitor = &count_scans<State>;
  const bool good = survives(state, [&] {
    jpeg_create_decompress(&info);  // keeps err and client_data
    state.made = true;
    info.progress = &state.progress;
    jpeg_mem_src(&info, content.data(), content.size());
    jpeg_read_header(&info, TRUE);
  });
  if (!good) fail_with_words(state, name_, "JPEG");
  check_pixels(size(), max_pixels, name_);
}

JpegReader::~JpegReader() = default;

ImageSize JpegReader::size(int eighths) const {
  const auto scaled = [&](JDIMENSION side) { return (std::int64_t{side} * eighths + 7) / 8; };
  return {scaled(state_->info.image_height), scaled(state_->info.image_width)};
}

Image JpegReader::read(const std::optional<Box>& box, int eighths) {
  PEAL_CHECK(eighths >= 1 && eighths <= 8, "[data] ", name_,
             ": expected a scale of 1 to 8 eighths, got ", eighths);
  const ImageSize whole = size(eighths);
  const Box part = box.value_or(Box{0, 0, whole.height, whole.width});
  check_box(part, whole, name_);
  State& state = *state_;
  jpeg_decompress_struct& info = state.info;
  const bool inks = info.num_components == 4;
  JDIMENSION from = 0, width = 0;  // of the rows that libjpeg gives
  bool good = survives(state, [&] {
    info.scale_num = static_cast<unsigned>(eighths);
    info.scale_denom = 8;
    info.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&info);
    width = info.output_width;
    // A pixel at the edge of what is decoded lacks the neighbours that smooth its colour, so a
    // block more on either side.
    const auto block = static_cast<std::int64_t>(info.max_h_samp_factor) * eighths;
    const std::int64_t left = std::max<std::int64_t>(0, part.left - block);
    const std::int64_t right = std::min(whole.width, part.left + part.width + block);
    if (left > 0 || right < whole.width) {
      from = static_cast<JDIMENSION>(left);
      width = static_cast<JDIMENSION>(right - left);
      jpeg_crop_scanline(&info, &from, &width);
    }
  });
  if (!good) fail_with_words(state, name_, "JPEG");
  PEAL_CHECK(info.output_height == whole.height, "[data] ", name_, ": libjpeg gives ",
             info.output_height, " rows, expected ", whole.height);

  const std::size_t channels = inks ? 4 : 3;
  Image image(part.height, part.width);
  std::vector<std::uint8_t> line(width * channels);
  const std::uint8_t* wanted = line.data() + (part.left - from) * static_cast<int>(channels);
  const bool straight = !inks && from == 0 && width == part.width;
  good = survives(state, [&] {
    if (part.top > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(part.top));
    for (std::int64_t y = 0; y < part.height; ++y) {
      JSAMPROW row = straight ? image.row(y) : line.data();
      jpeg_read_scanlines(&info, &row, 1);
      if (straight) continue;
      if (inks) {
        rgb_of_inks(wanted, part.width, image.row(y));
      } else {
        std::memcpy(image.row(y), wanted, static_cast<std::size_t>(image.stride()));
      }
    }
  });
  if (!good) fail_with_words(state, name_, "JPEG");
  return image;
}

}  // namespace peal::data
