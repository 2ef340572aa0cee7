// SPDX-License-Identifier: Apache-2.0
// Affine transforms (rotations and shears) in PIL's steps, whose roundings count: each pixel of the
// result looks up where it comes from, in 16.16 fixed point for the nearest pixel, in f64 for a mix
// of four and where nothing is turned.
#include <peal/autograd/core/error.h>
#include <peal/data/images/geometry.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>
#include <tuple>
#include <utility>
#include <vector>

namespace peal::data {
namespace {

// x' = a x + b y + c, y' = d x + e y + f.
struct Affine {
  double a, b, c, d, e, f;
  std::pair<double, double> operator()(double x, double y) const {
    return {a * x + b * y + c, d * x + e * y + f};
  }
};

// After the point, as Python's round(value, 15).
double to_15_digits(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.begin(), text.end(), value, std::chars_format::fixed, 15).ptr;
  std::from_chars(text.begin(), end, value);
  return value;
}

Image turned_by_90(const Image& image, int times) {
  const bool sideways = times % 2 != 0;
  Image made(sideways ? image.width : image.height, sideways ? image.height : image.width);
  for (std::int64_t y = 0; y < made.height; ++y) {
    for (std::int64_t x = 0; x < made.width; ++x) {
      const std::uint8_t* from = times == 1 ? image.row(x) + 3 * (image.width - 1 - y)
                                 : times == 2
                                     ? image.row(image.height - 1 - y) + 3 * (image.width - 1 - x)
                                     : image.row(image.height - 1 - x) + 3 * y;
      std::copy_n(from, 3, made.row(y) + 3 * x);
    }
  }
  return made;
}

void nearest_from(const Image& image, const Affine& by, Image& made) {
  const auto fixed = [](double v) {
    return static_cast<std::int64_t>(std::floor(v * 65536 + 0.5));
  };
  const std::int64_t a = fixed(by.a), b = fixed(by.b), d = fixed(by.d), e = fixed(by.e);
  std::int64_t from_x = fixed(by.c + by.a * 0.5 + by.b * 0.5);
  std::int64_t from_y = fixed(by.f + by.d * 0.5 + by.e * 0.5);
  for (std::int64_t y = 0; y < made.height; ++y, from_x += b, from_y += e) {
    std::int64_t across = from_x, down = from_y;
    std::uint8_t* to = made.row(y);
    for (std::int64_t x = 0; x < made.width; ++x, to += 3, across += a, down += d) {
      const std::int64_t column = across >> 16, row = down >> 16;
      if (column < 0 || column >= image.width || row < 0 || row >= image.height) continue;
      std::copy_n(image.row(row) + 3 * column, 3, to);
    }
  }
}

// Where rows stay rows.
void nearest_scaled_from(const Image& image, const Affine& by, Image& made) {
  const auto places = [](double at, double step, std::int64_t count, std::int64_t size) {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < count; ++i, at += step) {
      const bool inside = at >= 0 && at < static_cast<double>(size);
      all.push_back(inside ? static_cast<std::int64_t>(at) : -1);
    }
    return all;
  };
  const auto columns = places(by.c + by.a * 0.5, by.a, made.width, image.width);
  const auto rows = places(by.f + by.e * 0.5, by.e, made.height, image.height);
  for (std::int64_t y = 0; y < made.height; ++y) {
    const std::int64_t row = rows[static_cast<std::size_t>(y)];
    if (row < 0) continue;
    for (std::int64_t x = 0; x < made.width; ++x) {
      const std::int64_t column = columns[static_cast<std::size_t>(x)];
      if (column >= 0) std::copy_n(image.row(row) + 3 * column, 3, made.row(y) + 3 * x);
    }
  }
}

void bilinear_from(const Image& image, const Affine& by, Image& made) {
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  for (std::int64_t y = 0; y < made.height; ++y) {
    std::uint8_t* to = made.row(y);
    for (std::int64_t x = 0; x < made.width; ++x, to += 3) {
      auto [across, down] = by(static_cast<double>(x) + 0.5, static_cast<double>(y) + 0.5);
      if (across < 0 || across >= width || down < 0 || down >= height) continue;
      across -= 0.5;
      down -= 0.5;
      const auto column = static_cast<std::int64_t>(std::floor(across));
      const auto row = static_cast<std::int64_t>(std::floor(down));
      const double dx = across - static_cast<double>(column), dy = down - static_cast<double>(row);
      const auto clip = [&](std::int64_t at) {
        return std::clamp<std::int64_t>(at, 0, image.width - 1) * 3;
      };
      const std::int64_t left = clip(column), right = clip(column + 1);
      const std::uint8_t* upper = image.row(std::clamp<std::int64_t>(row, 0, image.height - 1));
      const bool has_lower = row + 1 >= 0 && row + 1 < image.height;
      const std::uint8_t* lower = has_lower ? image.row(row + 1) : upper;
      for (int c = 0; c < 3; ++c) {
        const double first = upper[left + c] + (upper[right + c] - upper[left + c]) * dx;
        const double second =
            has_lower ? lower[left + c] + (lower[right + c] - lower[left + c]) * dx : first;
        to[c] = static_cast<std::uint8_t>(first + (second - first) * dy);
      }
    }
  }
}

void check_taken_from(const char* what, const Image& image, Interpolation how) {
  PEAL_CHECK(how == Interpolation::nearest || how == Interpolation::bilinear, "[data] ", what,
             ": expected the interpolation nearest or bilinear");
  PEAL_CHECK(image.channels == 3, "[data] ", what, ": expected an image of 3 channels, got ",
             image.channels);
}

Image taken_from(const Image& image, const Affine& by, ImageSize size, Interpolation how,
                 Colour fill) {
  Image made(size.height, size.width);
  for (std::size_t i = 0; i < made.pixels.size(); ++i) made.pixels[i] = fill[i % 3];
  if (how == Interpolation::bilinear) {
    bilinear_from(image, by, made);
  } else if (by.b == 0 && by.d == 0) {
    nearest_scaled_from(image, by, made);
  } else {
    nearest_from(image, by, made);
  }
  return made;
}

}  // namespace

Image affine(const Image& image, double degrees, std::array<double, 2> translate, double scale,
             std::array<double, 2> shear, const AffineOptions& options) {
  check_taken_from("affine", image, options.interpolation);
  const bool finite = std::isfinite(degrees) && std::isfinite(translate[0]) &&
                      std::isfinite(translate[1]) && std::isfinite(shear[0]) &&
                      std::isfinite(shear[1]) && std::isfinite(scale);
  PEAL_CHECK(finite && scale > 0, "[data] affine: expected numbers, and a scale above 0, got ",
             degrees, " degrees, moved by ", translate[0], ", ", translate[1], ", scale ", scale,
             ", sheared by ", shear[0], ", ", shear[1]);
  const auto radians = [](double angle) { return angle * (std::numbers::pi / 180); };
  const double turn = radians(degrees), along_x = radians(shear[0]), along_y = radians(shear[1]);
  // The inverse of turning after shearing, whose determinant is 1.
  const double a = std::cos(turn - along_y) / std::cos(along_y);
  const double b =
      -std::cos(turn - along_y) * std::tan(along_x) / std::cos(along_y) - std::sin(turn);
  const double c = std::sin(turn - along_y) / std::cos(along_y);
  const double d =
      -std::sin(turn - along_y) * std::tan(along_x) / std::cos(along_y) + std::cos(turn);
  Affine by{d / scale, -b / scale, 0, -c / scale, a / scale, 0};
  // Which fixed point holds.
  constexpr double most_step = 1 << 16, most_move = 1 << 30;
  const double step = std::max({std::abs(by.a), std::abs(by.b), std::abs(by.d), std::abs(by.e)});
  PEAL_CHECK(
      step < most_step && std::abs(translate[0]) < most_move && std::abs(translate[1]) < most_move,
      "[data] affine: expected a picture to be left, got shears of ", shear[0], ", ", shear[1],
      " degrees, a scale of ", scale, ", moved by ", translate[0], ", ", translate[1]);
  const auto [x, y] = options.center.value_or(
      std::array{static_cast<double>(image.width) * 0.5, static_cast<double>(image.height) * 0.5});
  std::tie(by.c, by.f) = by(-x - translate[0], -y - translate[1]);
  by.c += x;
  by.f += y;
  return taken_from(image, by, image.size(), options.interpolation, options.fill);
}

Image rotated(const Image& image, double degrees, Interpolation how, bool expand, Colour fill) {
  check_taken_from("rotate", image, how);
  PEAL_CHECK(std::isfinite(degrees), "[data] rotate: expected an angle in degrees, got ", degrees);
  double angle = std::fmod(degrees, 360);
  if (angle < 0) angle += 360;
  if (angle == 0) return image;
  if (angle == 180) return turned_by_90(image, 2);
  if ((angle == 90 || angle == 270) && (expand || image.width == image.height)) {
    return turned_by_90(image, angle == 90 ? 1 : 3);
  }
  const double radians = -(angle * (std::numbers::pi / 180));
  const double cosine = to_15_digits(std::cos(radians)), sine = to_15_digits(std::sin(radians));
  Affine by{cosine, sine, 0, to_15_digits(-std::sin(radians)), cosine, 0};
  const auto height = static_cast<double>(image.height), width = static_cast<double>(image.width);
  std::tie(by.c, by.f) = by(-width / 2, -height / 2);
  by.c += width / 2;
  by.f += height / 2;
  ImageSize size = image.size();
  if (expand) {
    std::array<double, 4> xs{}, ys{};
    const std::array<std::pair<double, double>, 4> corners{
        {{0, 0}, {width, 0}, {width, height}, {0, height}}};
    for (std::size_t i = 0; i < 4; ++i) {
      std::tie(xs[i], ys[i]) = by(corners[i].first, corners[i].second);
    }
    const auto extent = [](const std::array<double, 4>& all) {
      const auto [low, high] = std::minmax_element(all.begin(), all.end());
      return std::ceil(*high) - std::floor(*low);
    };
    const double wide = extent(xs), high = extent(ys);
    std::tie(by.c, by.f) = by(-(wide - width) / 2, -(high - height) / 2);
    size = {static_cast<std::int64_t>(high), static_cast<std::int64_t>(wide)};
    PEAL_CHECK(size.height <= most_pixels / std::max<std::int64_t>(size.width, 1),
               "[data] rotate: expected a result of at most ", most_pixels, " pixels, got ",
               size.height, " x ", size.width, "; rotate a smaller image, or without expand");
  }
  return taken_from(image, by, size, how, fill);
}

}  // namespace peal::data
