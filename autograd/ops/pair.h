// SPDX-License-Identifier: Apache-2.0
// Pair: a height and a width, or one number for both, as everything over images takes them:
// {.padding = 1} is {.padding = {1, 1}}. Triple is the same over volumes.
// Single is one number, where sequences want a type of their own.
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

struct Single {
  std::int64_t length;

  template <std::integral Number>
  requires(!std::same_as<Number, bool>) constexpr Single(
      Number one)  // NOLINT: meant as a conversion
      : length(static_cast<std::int64_t>(one)) {}
  constexpr std::int64_t operator[](std::size_t) const { return length; }
  constexpr bool operator==(const Single&) const = default;
};

struct Triple {
  std::int64_t depth, height, width;

  template <std::integral Number>
  requires(!std::same_as<Number, bool>) constexpr Triple(
      Number all)  // NOLINT: meant as a conversion
      : depth(static_cast<std::int64_t>(all)), height(depth), width(depth) {}
  constexpr Triple(std::int64_t d, std::int64_t h, std::int64_t w)
      : depth(d), height(h), width(w) {}

  // 0: the depth; 1: the height; 2: the width.
  constexpr std::int64_t operator[](std::size_t d) const {
    return d == 0 ? depth : d == 1 ? height : width;
  }
  constexpr Pair plane() const { return {height, width}; }
  constexpr bool operator==(const Triple&) const = default;
};

}  // namespace peal
