// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/images/tones.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace peal::data {
namespace {

using Curve = std::array<std::uint8_t, 256>;
using Histogram = std::array<std::int64_t, 256>;

std::uint8_t as_byte(std::int64_t value) {
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(value, 0, 255));
}

template <class F>
Curve curve_of(const F& f) {
  Curve curve{};
  for (int value = 0; value < 256; ++value) curve[static_cast<std::size_t>(value)] = f(value);
  return curve;
}

Image by_one(Image image, const Curve& curve) {
  for (std::uint8_t& byte : image.pixels) byte = curve[byte];
  return image;
}

// Each channel by a curve of its histogram.
template <class F>
Image by_channel(Image image, const F& curve_of_histogram) {
  const auto channels = static_cast<std::size_t>(image.channels);
  for (std::size_t c = 0; c < channels; ++c) {
    Histogram histogram{};
    for (std::size_t i = c; i < image.pixels.size(); i += channels) ++histogram[image.pixels[i]];
    const Curve curve = curve_of_histogram(histogram);
    for (std::size_t i = c; i < image.pixels.size(); i += channels) {
      image.pixels[i] = curve[image.pixels[i]];
    }
  }
  return image;
}

Curve same() {
  return curve_of([](int value) { return static_cast<std::uint8_t>(value); });
}

Curve stretched(const Histogram& histogram) {
  int low = 0, high = 255;
  while (low < 255 && histogram[static_cast<std::size_t>(low)] == 0) ++low;
  while (high > 0 && histogram[static_cast<std::size_t>(high)] == 0) --high;
  if (high <= low) return same();
  const double scale = 255.0 / (high - low), offset = -low * scale;
  return curve_of([&](int value) { return as_byte(static_cast<int>(value * scale + offset)); });
}

Curve flattened(const Histogram& histogram) {
  std::int64_t all = 0, last = 0, values = 0;
  for (const std::int64_t count : histogram) {
    if (count == 0) continue;
    all += count;
    last = count;
    ++values;
  }
  const std::int64_t step = (all - last) / 255;
  if (values <= 1 || step == 0) return same();
  std::int64_t below = step / 2;
  return curve_of([&](int value) {
    const std::uint8_t to = as_byte(below / step);
    below += histogram[static_cast<std::size_t>(value)];
    return to;
  });
}

}  // namespace

Image inverted(Image image) {
  return by_one(std::move(image),
                curve_of([](int value) { return static_cast<std::uint8_t>(255 - value); }));
}

Image solarized(Image image, double threshold) {
  return by_one(std::move(image), curve_of([&](int value) {
                  return static_cast<std::uint8_t>(value < threshold ? value : 255 - value);
                }));
}

Image posterized(Image image, int bits) {
  PEAL_CHECK(bits >= 0 && bits <= 8, "[data] posterize: expected 0 to 8 bits, got ", bits);
  const int kept = 0xff & ~((1 << (8 - bits)) - 1);
  return by_one(std::move(image),
                curve_of([&](int value) { return static_cast<std::uint8_t>(value & kept); }));
}

Image autocontrasted(Image image) { return by_channel(std::move(image), stretched); }

Image equalized(Image image) { return by_channel(std::move(image), flattened); }

}  // namespace peal::data
