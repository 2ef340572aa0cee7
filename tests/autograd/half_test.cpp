// SPDX-License-Identifier: Apache-2.0
// Two-byte types: every value, and every rounding between neighbours.
#include <peal/autograd/core/half.h>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

using peal::BFloat16;
using peal::Half;

namespace {

// What the bits mean, by the definition of the format.
double meaning(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  const int exponent = (bits >> fraction_bits) & top, fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == top) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

template <class T>
void check_every_value(int exponent_bits, int fraction_bits) {
  int wrong = 0;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    T value;
    value.bits = static_cast<std::uint16_t>(i);
    const float widened = value;
    const double expected = meaning(value.bits, exponent_bits, fraction_bits);
    if (std::isnan(expected)) {
      wrong += !std::isnan(widened) || !std::isnan(static_cast<float>(T(widened)));
    } else {
      wrong += static_cast<double>(widened) != expected || T(widened).bits != value.bits ||
               std::signbit(widened) != std::signbit(expected);
    }
  }
  CHECK(wrong == 0);
}

// Between neighbours below and above, at a quarter, the middle and three quarters; the middle goes
// to the even one.
template <class T>
void check_every_rounding(int exponent_bits, int fraction_bits) {
  int wrong = 0;
  const std::uint32_t infinity = ((1u << exponent_bits) - 1) << fraction_bits;
  for (std::uint32_t i = 0; i + 1 < infinity; ++i) {
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const auto low = static_cast<std::uint16_t>(sign | i),
                 high = static_cast<std::uint16_t>(sign | (i + 1));
      const double a = meaning(low, exponent_bits, fraction_bits),
                   b = meaning(high, exponent_bits, fraction_bits);
      wrong += T(static_cast<float>(a + (b - a) / 4)).bits != low;
      wrong += T(static_cast<float>(a + (b - a) * 3 / 4)).bits != high;
      wrong += T(static_cast<float>(a + (b - a) / 2)).bits != (i % 2 == 0 ? low : high);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("every half and every bfloat16 widens exactly and comes back") {
  check_every_value<Half>(5, 10);
  check_every_value<BFloat16>(8, 7);
}

TEST_CASE("conversions round to nearest, ties to even") {
  check_every_rounding<Half>(5, 10);
  check_every_rounding<BFloat16>(8, 7);
}

TEST_CASE("what is too large becomes infinite, and only that") {
  CHECK(Half(65519.996f).bits == 0x7bff);
  CHECK(Half(65520.0f).bits == 0x7c00);
  CHECK(Half(-1e30f).bits == 0xfc00);
  CHECK(BFloat16(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(BFloat16(std::bit_cast<float>(0x7f7f7fffu)).bits == 0x7f7f);
  CHECK(Half(INFINITY).bits == 0x7c00);
  CHECK(BFloat16(-INFINITY).bits == 0xff80);
}
