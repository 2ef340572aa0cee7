// SPDX-License-Identifier: Apache-2.0
#pragma once

// Curves over sizes in bytes, or over numbers of ranks, a name each, as an SVG picture; what stands
// at the axes has its unit. Both are logarithmic, but for shares, which go from 0 to 100 %.
//
// Thread safety: a pure function.

#include <cstdint>
#include <string>
#include <vector>

namespace peal::launch {

struct Curve {
  std::string name;
  std::vector<double> values;  // above 0; NaN where there is no point
};
struct Plot {
  enum class Unit : std::uint8_t { seconds, bytes_a_second, share, times };
  enum class Over : std::uint8_t { bytes, ranks };
  std::string title;
  std::vector<std::int64_t> at;  // ascending
  std::vector<Curve> curves;     // not empty, and each has a point
  Unit unit = Unit::seconds;
  Over over = Over::bytes;
};

// One below the other.
std::string svg(const std::vector<Plot>& plots);

}  // namespace peal::launch
