// SPDX-License-Identifier: Apache-2.0
// The largest of differences, as tests of closeness want it.
#pragma once

#include <algorithm>
#include <cmath>

namespace peal::testing {

// The larger; infinite for a NaN, which std::max would pass over.
inline double larger(double worst, double difference) {
  return std::isnan(difference) ? INFINITY : std::max(worst, difference);
}

}  // namespace peal::testing
