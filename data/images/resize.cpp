// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/data/images/resample_kernels.h>
#include <peal/data/images/resize.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace peal::data {
namespace {

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

struct Filter {
  double support;
  double (*at)(double x);
};

Filter filter_of(Interpolation how) {
  switch (how) {
    case Interpolation::box:
      return {0.5, [](double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }};
    case Interpolation::hamming:
      return {1, [](double x) {
                x = std::abs(x);
                if (x == 0) return 1.0;
                if (x >= 1) return 0.0;
                x *= std::numbers::pi;
                return std::sin(x) / x * (0.54f + 0.46f * std::cos(x));
              }};
    case Interpolation::bicubic:
      return {2, [](double x) {
                constexpr double a = -0.5;
                x = std::abs(x);
                if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
                if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
                return 0.0;
              }};
    case Interpolation::lanczos:
      return {3, [](double x) { return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0.0; }};
    default:
      return {1, [](double x) {
                x = std::abs(x);
                return x < 1 ? 1 - x : 0.0;
              }};
  }
}

// The weights of `out` pixels made of those between `from` and `to` of `in` pixels. PIL keeps edges
// in f32.
class Weights {
 public:
  Weights(std::int64_t in, double from_edge, double to_edge, std::int64_t out,
          const Filter& filter) {
    const auto from = static_cast<float>(from_edge), to = static_cast<float>(to_edge);
    const double scale = static_cast<double>(to - from) / static_cast<double>(out);
    const double widened = std::max(scale, 1.0);
    const double support = filter.support * widened;
    most_ = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
    first_.resize(static_cast<std::size_t>(out));
    count_.resize(first_.size());
    weight_.resize(static_cast<std::size_t>(out * most_));
    std::vector<double> exact(static_cast<std::size_t>(most_));
    for (std::int64_t i = 0; i < out; ++i) {
      const double center = from + (static_cast<double>(i) + 0.5) * scale;
      const auto first =
          std::max<std::int64_t>(0, static_cast<std::int64_t>(center - support + 0.5));
      const auto end = std::min(in, static_cast<std::int64_t>(center + support + 0.5));
      const auto count = static_cast<std::size_t>(end - first);
      double sum = 0;
      for (std::size_t k = 0; k < count; ++k) {
        const auto at = static_cast<double>(static_cast<std::int64_t>(k) + first);
        exact[k] = filter.at((at - center + 0.5) * (1.0 / widened));
        sum += exact[k];
      }
      first_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(first);
      count_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(count);
      for (std::size_t k = 0; k < count; ++k) {
        if (sum != 0) exact[k] /= sum;
        const double fixed = exact[k] * (1 << weight_bits);
        weight_[static_cast<std::size_t>(i * most_) + k] =
            static_cast<std::int32_t>(exact[k] < 0 ? -0.5 + fixed : 0.5 + fixed);
      }
    }
  }

  // Of the input's first and last pixel that count.
  std::int64_t first() const { return first_.front(); }
  std::int64_t end() const { return first_.back() + count_.back(); }
  void shift(std::int64_t by) {
    for (std::int32_t& at : first_) at -= static_cast<std::int32_t>(by);
  }
  Taps taps() const {
    return {first_.data(), count_.data(), weight_.data(), static_cast<std::int64_t>(first_.size()),
            most_};
  }

 private:
  std::int64_t most_ = 0;
  std::vector<std::int32_t> first_, count_, weight_;
};

// Which pixel each of `out` takes; in PIL's steps, whose roundings count.
std::vector<std::int64_t> nearest(double from, double length, std::int64_t in, std::int64_t out) {
  std::vector<std::int64_t> pixels;
  const double step = length / static_cast<double>(out);
  double at = from + step * 0.5;
  for (std::int64_t i = 0; i < out; ++i, at += step) {
    pixels.push_back(std::min(static_cast<std::int64_t>(at), in - 1));
  }
  return pixels;
}

Image nearest_resized(const Image& image, const RealBox& box, ImageSize size) {
  const auto columns = nearest(box.left, box.width, image.width, size.width);
  const auto rows = nearest(box.top, box.height, image.height, size.height);
  Image made(size.height, size.width);
  std::uint8_t* to = made.pixels.data();
  for (const std::int64_t y : rows) {
    for (const std::int64_t x : columns) {
      const std::uint8_t* from = image.row(y) + 3 * x;
      for (int c = 0; c < 3; ++c) *to++ = from[c];
    }
  }
  return made;
}

}  // namespace

Image resized(const Image& image, ImageSize size, Interpolation how) {
  return resized(image, {0, 0, static_cast<double>(image.height), static_cast<double>(image.width)},
                 size, how);
}

Image resized(const Image& image, const RealBox& box, ImageSize size, Interpolation how) {
  PEAL_CHECK(image.channels == 3, "[data] resize: expected an image of 3 channels, got ",
             image.channels);
  PEAL_CHECK(size.height >= 1 && size.width >= 1 && size.height <= most_pixels / size.width,
             "[data] resize: expected a size from 1 x 1 to ", most_pixels, " pixels, got ",
             size.height, " x ", size.width);
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  PEAL_CHECK(box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 &&
                 box.top + box.height <= height && box.left + box.width <= width,
             "[data] resize: expected a box inside of ", image.height, " x ", image.width,
             " pixels, got ", box.height, " x ", box.width, " at row ", box.top, ", column ",
             box.left);
  if (how == Interpolation::nearest) return nearest_resized(image, box, size);
  const bool wholly_across = box.left == 0 && box.width == width && size.width == image.width;
  const bool wholly_down = box.top == 0 && box.height == height && size.height == image.height;
  if (wholly_across && wholly_down) return image;
  const Filter filter = filter_of(how);
  const ResampleKernels kernels = resample_kernels();
  Weights down(image.height, box.top, box.top + box.height, size.height, filter);

  const std::uint8_t* rows = image.pixels.data();
  Image across;
  if (!wholly_across) {
    const Weights weights(image.width, box.left, box.left + box.width, size.width, filter);
    // Only the rows that the other pass asks for.
    const std::int64_t first = wholly_down ? 0 : down.first();
    const std::int64_t end = wholly_down ? image.height : down.end();
    across = Image(end - first, size.width);
    kernels.across(image.row(first), image.stride(), end - first,
                   image.pixels.data() + image.pixels.size(), weights.taps(), across.pixels.data());
    if (wholly_down) return across;
    rows = across.pixels.data();
    down.shift(first);
  }
  Image made(size.height, size.width);
  kernels.down(rows, made.stride(), down.taps(), made.pixels.data());
  return made;
}

void check_side(std::string_view who, ImageSize size) {
  PEAL_CHECK(size.height >= 1 && size.width >= 1, "[data] ", who,
             ": expected a size of at least 1 x 1, got ", size.height, " x ", size.width);
}

ImageSize size_by_shorter(ImageSize size, std::int64_t shorter,
                          std::optional<std::int64_t> longest) {
  PEAL_CHECK(shorter >= 1 && (!longest || *longest > shorter),
             "[data] resize: expected a shorter side of at least 1, and a longest one above it, "
             "got ",
             shorter, " and ", longest.value_or(0));
  const auto [low, high] = std::minmax(size.height, size.width);
  // As torchvision computes it: a whole number times a whole number, divided in f64.
  const auto part = [](std::int64_t a, std::int64_t b, std::int64_t c) {
    return std::max<std::int64_t>(
        1, static_cast<std::int64_t>(static_cast<double>(a * b) / static_cast<double>(c)));
  };
  std::int64_t made_low = shorter, made_high = part(shorter, high, low);
  if (longest && made_high > *longest) {
    made_low = part(*longest, made_low, made_high);
    made_high = *longest;
  }
  return size.width <= size.height ? ImageSize{made_high, made_low}
                                   : ImageSize{made_low, made_high};
}

}  // namespace peal::data
