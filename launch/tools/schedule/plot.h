// SPDX-License-Identifier: Apache-2.0
#pragma once

// Curves over sizes in bytes, a name each, as an SVG picture; both axes are logarithmic, and what
// stands at them has its unit.
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
  enum class Unit : std::uint8_t { seconds, bytes_a_second };
  std::string title;
  std::vector<std::int64_t> bytes;  // ascending
  std::vector<Curve> curves;        // not empty, and each has a point
  Unit unit = Unit::seconds;
};

// One below the other.
std::string svg(const std::vector<Plot>& plots);

}  // namespace peal::launch
