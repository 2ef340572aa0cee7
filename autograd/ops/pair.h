// SPDX-License-Identifier: Apache-2.0
// Pair: a height and a width, or one number for both, as everything over images takes them:
// {.padding = 1} is {.padding = {1, 1}}.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace peal {

struct Pair {
  std::int64_t height, width;

  // Not of a fraction or a bool, which would become a whole number without a word.
  template <std::integral Number>
  requires(!std::same_as<Number, bool>) constexpr Pair(
      Number both)  // NOLINT: meant as a conversion
      : height(static_cast<std::int64_t>(both)), width(height) {}
  constexpr Pair(std::int64_t h, std::int64_t w) : height(h), width(w) {}

  // 0: the height; 1: the width.
  constexpr std::int64_t operator[](std::size_t d) const { return d == 0 ? height : width; }
  constexpr std::array<std::int64_t, 2> array() const { return {height, width}; }
  constexpr bool operator==(const Pair&) const = default;
};

}  // namespace peal
