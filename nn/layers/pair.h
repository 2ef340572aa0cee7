// SPDX-License-Identifier: Apache-2.0
// Pair: a height and a width, or one number for both, as layers over images take them.
#pragma once

#include <array>
#include <cstdint>

namespace peal::nn {

struct Pair {
  std::int64_t height, width;
  Pair(std::int64_t both) : height(both), width(both) {}  // NOLINT: meant as a conversion
  Pair(std::int64_t h, std::int64_t w) : height(h), width(w) {}
  std::array<std::int64_t, 2> array() const { return {height, width}; }
};

}  // namespace peal::nn
