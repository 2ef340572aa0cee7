// SPDX-License-Identifier: Apache-2.0
// The synthetic digits: a pure function of (seed, index), the same on every machine, and learnable.
#include <doctest/doctest.h>
#include <peal/autograd/core/error.h>
#include <peal/data/synthetic_digits.h>

#include <cmath>
#include <limits>

using peal::data::draw_digit;
using peal::data::synthetic_digits;

namespace {

// FNV-1a over pixels and labels.
std::uint64_t hash_of(const peal::data::ImageDataset& set) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::uint64_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (std::int64_t i = 0; i < set.size(); ++i) {
    for (const std::uint8_t pixel : set.pixels(i)) add(pixel);
    add(static_cast<std::uint64_t>(set.label(i)));
  }
  return hash;
}

std::int64_t nearest_label(const peal::data::ImageDataset& known,
                           std::span<const std::uint8_t> image) {
  std::int64_t label = -1, least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t i = 0; i < known.size(); ++i) {
    const auto other = known.pixels(i);
    std::int64_t distance = 0;
    for (std::size_t at = 0; at < image.size() && distance < least; ++at) {
      const std::int64_t difference = int{image[at]} - int{other[at]};
      distance += difference * difference;
    }
    if (distance < least) {
      least = distance;
      label = known.label(i);
    }
  }
  return label;
}

}  // namespace

TEST_CASE("a digit is a pure function of seed and index") {
  const auto set = synthetic_digits(50, 3);
  for (const std::int64_t index : {49, 0, 17}) {
    const auto alone = draw_digit(3, static_cast<std::uint64_t>(index));
    const auto pixels = set->pixels(index);
    CHECK(std::equal(pixels.begin(), pixels.end(), alone.pixels.begin()));
    CHECK(set->label(index) == alone.label);
  }
  CHECK(draw_digit(3, 1).pixels != draw_digit(4, 1).pixels);
  CHECK(draw_digit(3, 1).pixels != draw_digit(3, 2).pixels);
}

TEST_CASE("every machine draws the same bytes") {
  CHECK(hash_of(*synthetic_digits(500, 0)) == 0x4e9f4bbb71449aa5u);
}

TEST_CASE("all classes come, about equally often") {
  const auto set = synthetic_digits(3000, 1);
  std::array<int, 10> counts{};
  for (std::int64_t i = 0; i < set->size(); ++i) ++counts[static_cast<std::size_t>(set->label(i))];
  for (const int count : counts) {
    CHECK(count > 240);
    CHECK(count < 360);
  }
}

TEST_CASE("the normalisation is that of the images") {
  const auto set = synthetic_digits(2000, 2);
  std::vector<std::int64_t> all(2000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const auto x = set->get(all).x.to_vector<float>();
  double sum = 0, squares = 0;
  for (const float value : x) {
    sum += value;
    squares += value * value;
  }
  const double mean = sum / static_cast<double>(x.size());
  CHECK(std::abs(mean) < 0.03);
  CHECK(std::abs(squares / static_cast<double>(x.size()) - mean * mean - 1) < 0.05);
}

TEST_CASE("the digits can be told apart: the nearest of 1500 others mostly has the same label") {
  const auto known = synthetic_digits(1500, 0), fresh = synthetic_digits(200, 1);
  int right = 0;
  for (std::int64_t i = 0; i < fresh->size(); ++i) {
    right += nearest_label(*known, fresh->pixels(i)) == fresh->label(i) ? 1 : 0;
  }
  MESSAGE(right, " of 200");
  CHECK(right > 170);
}

TEST_CASE("a negative count is an error") {
  CHECK_THROWS_WITH_AS(synthetic_digits(-1, 0),
                       "[data] synthetic digits: expected a count of at least 0, got -1",
                       peal::Error);
}
