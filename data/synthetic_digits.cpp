// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/rng.h>
#include <peal/data/synthetic_digits.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace peal::data {
namespace {

constexpr int side = 28;

struct Point {
  float x, y;  // x to the right, y downwards
};
using Curve = std::array<Point, 4>;  // a cubic Bezier curve's control points

constexpr Curve line(Point a, Point b) {
  return {a,
          {a.x + (b.x - a.x) / 3, a.y + (b.y - a.y) / 3},
          {b.x - (b.x - a.x) / 3, b.y - (b.y - a.y) / 3},
          b};
}

// The strokes in the unit square.
constexpr Curve zero[] = {{{{.5f, .05f}, {.08f, .05f}, {.08f, .95f}, {.5f, .95f}}},
                          {{{.5f, .95f}, {.92f, .95f}, {.92f, .05f}, {.5f, .05f}}}};
constexpr Curve one[] = {line({.34f, .24f}, {.56f, .05f}), line({.56f, .05f}, {.5f, .95f})};
constexpr Curve two[] = {{{{.2f, .25f}, {.25f, -.05f}, {.85f, 0}, {.76f, .4f}}},
                         {{{.76f, .4f}, {.7f, .6f}, {.4f, .75f}, {.2f, .94f}}},
                         line({.2f, .94f}, {.82f, .92f})};
constexpr Curve three[] = {{{{.22f, .12f}, {.9f, -.1f}, {.9f, .5f}, {.45f, .47f}}},
                           {{{.45f, .47f}, {1, .45f}, {.85f, 1.1f}, {.2f, .88f}}}};
constexpr Curve four[] = {line({.58f, .05f}, {.15f, .62f}), line({.15f, .62f}, {.85f, .62f}),
                          line({.65f, .32f}, {.62f, .97f})};
constexpr Curve five[] = {line({.78f, .07f}, {.3f, .08f}),
                          line({.3f, .08f}, {.26f, .45f}),
                          {{{.26f, .45f}, {.95f, .25f}, {.95f, 1.05f}, {.2f, .9f}}}};
constexpr Curve six[] = {{{{.7f, .07f}, {.35f, .15f}, {.2f, .5f}, {.22f, .7f}}},
                         {{{.22f, .7f}, {.25f, 1.05f}, {.8f, 1}, {.78f, .7f}}},
                         {{{.78f, .7f}, {.75f, .4f}, {.3f, .42f}, {.22f, .7f}}}};
constexpr Curve seven[] = {line({.2f, .08f}, {.8f, .08f}),
                           {{{.8f, .08f}, {.6f, .35f}, {.45f, .6f}, {.4f, .95f}}}};
constexpr Curve eight[] = {{{{.5f, .47f}, {.1f, .35f}, {.2f, .03f}, {.5f, .05f}}},
                           {{{.5f, .05f}, {.8f, .03f}, {.9f, .35f}, {.5f, .47f}}},
                           {{{.5f, .47f}, {.05f, .6f}, {.15f, .97f}, {.5f, .95f}}},
                           {{{.5f, .95f}, {.85f, .97f}, {.95f, .6f}, {.5f, .47f}}}};
constexpr Curve nine[] = {{{{.75f, .3f}, {.7f, 0}, {.22f, 0}, {.22f, .3f}}},
                          {{{.22f, .3f}, {.22f, .58f}, {.7f, .6f}, {.75f, .3f}}},
                          {{{.75f, .3f}, {.78f, .6f}, {.7f, .8f}, {.6f, .96f}}}};

constexpr std::span<const Curve> strokes[] = {zero, one, two,   three, four,
                                              five, six, seven, eight, nine};

// The random numbers of one image: a stretch of Philox's stream that no op's generator reaches.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t index)
      : seed_(seed), block_((std::uint64_t{1} << 62) + index * 256) {}
  std::uint32_t word() {
    if (used_ == 4) {
      words_ = philox(seed_, block_++);
      used_ = 0;
    }
    return words_.word[used_++];
  }
  float between(float low, float high) { return low + (high - low) * uniform_from(word()); }

 private:
  std::uint64_t seed_, block_;
  PhiloxBlock words_{};
  int used_ = 4;
};

// From the unit square to pixels: bend, shear, scale, turn, shift.
class Hand {
 public:
  explicit Hand(Dice& dice)
      : bend_x_(dice.between(-.12f, .12f)),
        bend_y_(dice.between(-.12f, .12f)),
        shear_(dice.between(-.3f, .3f)),
        width_(dice.between(12, 19)),
        height_(dice.between(16, 22)),
        half_turn_(dice.between(-.13f, .13f)),
        shift_{dice.between(-2, 2), dice.between(-2, 2)} {}

  Point operator()(Point p) const {
    const float u = p.x - .5f, v = p.y - .5f;
    const float x = (u + shear_ * v + bend_x_ * (1 - 4 * v * v)) * width_;
    const float y = (v + bend_y_ * (1 - 4 * u * u)) * height_;
    // cos and sin of an angle from the tangent of its half: -15 to 15 degrees.
    const float t = half_turn_, scale = 1 / (1 + t * t);
    const float cosine = (1 - t * t) * scale, sine = 2 * t * scale;
    return {cosine * x - sine * y + shift_.x + side / 2.0f,
            sine * x + cosine * y + shift_.y + side / 2.0f};
  }

 private:
  float bend_x_, bend_y_, shear_, width_, height_, half_turn_;
  Point shift_;
};

Point at(const Curve& curve, float t) {
  const float s = 1 - t;
  const float a = s * s * s, b = 3 * s * s * t, c = 3 * s * t * t, d = t * t * t;
  return {a * curve[0].x + b * curve[1].x + c * curve[2].x + d * curve[3].x,
          a * curve[0].y + b * curve[1].y + c * curve[2].y + d * curve[3].y};
}

using Coverage = std::array<float, side * side>;  // 0 to 1: how much of a pixel is inked

float distance(Point p, Point a, Point b) {
  const float dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy;
  const float along = length2 > 0 ? ((p.x - a.x) * dx + (p.y - a.y) * dy) / length2 : 0;
  const float t = std::clamp(along, 0.0f, 1.0f);
  const float x = p.x - a.x - t * dx, y = p.y - a.y - t * dy;
  return std::sqrt(x * x + y * y);
}

// Inks a straight piece of a stroke, `pen` wide to each side, soft over one pixel.
void ink(Coverage& coverage, Point a, Point b, float pen) {
  const float reach = pen + 1;
  const auto pixel = [](float x) { return std::clamp(static_cast<int>(x), 0, side - 1); };
  for (int y = pixel(std::min(a.y, b.y) - reach); y <= pixel(std::max(a.y, b.y) + reach); ++y) {
    for (int x = pixel(std::min(a.x, b.x) - reach); x <= pixel(std::max(a.x, b.x) + reach); ++x) {
      const Point centre{static_cast<float>(x) + .5f, static_cast<float>(y) + .5f};
      float& here = coverage[static_cast<std::size_t>(y * side + x)];
      here = std::max(here, std::clamp(pen + .5f - distance(centre, a, b), 0.0f, 1.0f));
    }
  }
}

}  // namespace

Digit draw_digit(std::uint64_t seed, std::uint64_t index) {
  constexpr int pieces = 8;  // straight ones, a curve
  Dice dice(seed, index);
  Digit digit{{}, dice.word() % 10};
  const Hand hand(dice);
  const float pen = dice.between(.7f, 1.6f), full = dice.between(140, 255);
  const float noise = dice.between(0, 40) / 255;
  Coverage coverage{};
  for (const Curve& curve : strokes[digit.label]) {
    Point from = hand(curve[0]);
    for (int piece = 1; piece <= pieces; ++piece) {
      const Point to = hand(at(curve, static_cast<float>(piece) / pieces));
      ink(coverage, from, to, pen);
      from = to;
    }
  }
  std::uint32_t grains = 0;  // four pixels' noise, a byte each
  for (std::size_t i = 0; i < coverage.size(); ++i) {
    grains = i % 4 == 0 ? dice.word() : grains >> 8;
    const float value = coverage[i] * full + static_cast<float>(grains & 255) * noise;
    digit.pixels[i] = static_cast<std::uint8_t>(std::min(value, 255.0f));
  }
  return digit;
}

ImageDatasetRef synthetic_digits(std::int64_t count, std::uint64_t seed) {
  PEAL_CHECK(count >= 0, "[data] synthetic digits: expected a count of at least 0, got ", count);
  std::vector<std::uint8_t> pixels;
  std::vector<std::int64_t> labels;
  pixels.reserve(static_cast<std::size_t>(count) * side * side);
  labels.reserve(static_cast<std::size_t>(count));
  for (std::int64_t index = 0; index < count; ++index) {
    const Digit digit = draw_digit(seed, static_cast<std::uint64_t>(index));
    pixels.insert(pixels.end(), digit.pixels.begin(), digit.pixels.end());
    labels.push_back(digit.label);
  }
  return std::make_shared<ImageDataset>("synthetic digits", Shape{1, side, side}, std::move(pixels),
                                        std::move(labels), 10, synthetic_digits_normalisation);
}

}  // namespace peal::data
