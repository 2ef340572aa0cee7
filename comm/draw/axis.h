// SPDX-License-Identifier: Apache-2.0
// Axis: what pictures over time write beside their lines. Thread safety: pure functions.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>

namespace peal::comm {

inline std::string number(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

inline std::string duration(double seconds) {
  if (seconds < 1e-3) return number(seconds * 1e6, 1) + " us";
  return seconds < 1 ? number(seconds * 1e3, 2) + " ms" : number(seconds, 2) + " s";
}

// The length of 1, 2 or 5 times a power of ten that is about an eighth of `whole`.
inline double tick(double whole) {
  const double power = std::pow(10.0, std::floor(std::log10(whole / 8)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (whole / (step * power) <= 9) return step * power;
  }
  return 10 * power;
}

}  // namespace peal::comm
