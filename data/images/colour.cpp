// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/images/colour.h>

#include <algorithm>
#include <cmath>

namespace peal::data {
namespace {

void check_image(const char* what, const Image& image, double factor) {
  PEAL_CHECK(image.channels == 3, "[data] ", what, ": expected an image of 3 channels, got ",
             image.channels);
  PEAL_CHECK(factor >= 0, "[data] ", what, ": expected a factor of at least 0, got ", factor);
}

std::uint8_t grey_of(const std::uint8_t* pixel) {
  return static_cast<std::uint8_t>(
      (pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16);
}

// From `from` towards `to`, as far as the factor says; beyond it where that is above 1. Rounded
// towards 0, in f32.
class Blend {
 public:
  explicit Blend(double factor) : factor_(static_cast<float>(factor)) {}
  bool is_whole() const { return factor_ == 1.0f; }
  std::uint8_t operator()(int from, int to) const {
    const float mixed = static_cast<float>(from) + factor_ * static_cast<float>(to - from);
    return static_cast<std::uint8_t>(std::clamp(mixed, 0.0f, 255.0f));
  }

 private:
  float factor_;
};

struct Hsv {
  std::uint8_t hue, saturation, value;
};

Hsv hsv_of(const std::uint8_t* pixel) {
  const int red = pixel[0], green = pixel[1], blue = pixel[2];
  const auto [least, most] = std::minmax({red, green, blue});
  if (least == most) return {0, 0, static_cast<std::uint8_t>(most)};
  const auto range = static_cast<float>(most - least);
  const float saturation = range / static_cast<float>(most);
  const auto away = [&, top = most](int channel) {
    return static_cast<float>(top - channel) / range;
  };
  float hue = 0;
  if (red == most) {
    hue = away(blue) - away(green);
  } else if (green == most) {
    hue = static_cast<float>(2.0 + away(red) - away(blue));
  } else {
    hue = static_cast<float>(4.0 + away(green) - away(red));
  }
  hue = static_cast<float>(std::fmod(hue / 6.0 + 1.0, 1.0));
  const auto byte = [](float x) {
    return static_cast<std::uint8_t>(std::clamp(static_cast<int>(x * 255.0), 0, 255));
  };
  return {byte(hue), byte(saturation), static_cast<std::uint8_t>(most)};
}

void to_rgb(const Hsv& from, std::uint8_t* pixel) {
  const std::uint8_t v = from.value;
  if (from.saturation == 0) {
    std::fill_n(pixel, 3, v);
    return;
  }
  const auto sixth = static_cast<int>(std::floor(static_cast<float>(from.hue) * 6.0 / 255.0));
  const auto rest = static_cast<float>(static_cast<float>(from.hue) * 6.0 / 255.0 - sixth);
  const auto share = static_cast<float>(static_cast<float>(from.saturation) / 255.0);
  const auto byte = [&](double keeps) {
    const auto rounded = static_cast<float>(std::round(v * keeps));
    return static_cast<std::uint8_t>(std::clamp(static_cast<int>(rounded), 0, 255));
  };
  const std::uint8_t p = byte(1.0 - share), q = byte(1.0 - share * rest),
                     t = byte(1.0 - share * (1.0 - rest));
  const std::uint8_t colours[6][3] = {{v, t, p}, {q, v, p}, {p, v, t},
                                      {p, q, v}, {t, p, v}, {v, p, q}};
  std::copy_n(colours[sixth % 6], 3, pixel);
}

template <class F>
void each_pixel(Image& image, const F& f) {
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) f(image.pixels.data() + i);
}

}  // namespace

Image greyscale(Image image) {
  check_image("greyscale", image, 0);
  each_pixel(image, [](std::uint8_t* pixel) { std::fill_n(pixel, 3, grey_of(pixel)); });
  return image;
}

Image brightness_adjusted(Image image, double factor) {
  check_image("brightness", image, factor);
  const Blend blend(factor);
  if (blend.is_whole()) return image;
  for (std::uint8_t& byte : image.pixels) byte = blend(0, byte);
  return image;
}

Image contrast_adjusted(Image image, double factor) {
  check_image("contrast", image, factor);
  const Blend blend(factor);
  if (blend.is_whole() || image.pixels.empty()) return image;
  std::int64_t sum = 0;
  each_pixel(image, [&](const std::uint8_t* pixel) { sum += grey_of(pixel); });
  const auto count = static_cast<double>(image.height * image.width);
  const auto mean = static_cast<int>(static_cast<double>(sum) / count + 0.5);
  for (std::uint8_t& byte : image.pixels) byte = blend(mean, byte);
  return image;
}

Image saturation_adjusted(Image image, double factor) {
  check_image("saturation", image, factor);
  const Blend blend(factor);
  if (blend.is_whole()) return image;
  each_pixel(image, [&](std::uint8_t* pixel) {
    const int grey = grey_of(pixel);
    for (int c = 0; c < 3; ++c) pixel[c] = blend(grey, pixel[c]);
  });
  return image;
}

Image sharpness_adjusted(Image image, double factor) {
  check_image("sharpness", image, factor);
  const Blend blend(factor);
  if (blend.is_whole() || image.height < 3 || image.width < 3) return image;
  const Image from = image;
  // Within the border, which stays: a mean of 3 x 3 pixels in which the middle one counts 5 times.
  for (std::int64_t y = 1; y + 1 < image.height; ++y) {
    for (std::int64_t i = 3; i + 3 < image.stride(); ++i) {
      int sum = 4 * from.row(y)[i];
      for (std::int64_t near = y - 1; near <= y + 1; ++near) {
        sum += from.row(near)[i - 3] + from.row(near)[i] + from.row(near)[i + 3];
      }
      image.row(y)[i] = blend((2 * sum + 13) / 26, from.row(y)[i]);
    }
  }
  return image;
}

Image hue_adjusted(Image image, double share) {
  check_image("hue", image, 0);
  PEAL_CHECK(share >= -0.5 && share <= 0.5, "[data] hue: expected a share from -0.5 to 0.5, got ",
             share);
  const int turn = static_cast<int>(share * 255);
  each_pixel(image, [&](std::uint8_t* pixel) {
    Hsv hsv = hsv_of(pixel);
    hsv.hue = static_cast<std::uint8_t>(hsv.hue + turn);  // around the circle
    to_rgb(hsv, pixel);
  });
  return image;
}

}  // namespace peal::data
