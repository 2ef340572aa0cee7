// SPDX-License-Identifier: Apache-2.0
// Fit: the latency of a round and the seconds of a byte that explain the measured times best, and
// how far model and measurement are apart, row by row. Thread safety: free functions.
#pragma once

#include <peal/bench/perf/report.h>
#include <peal/comm/simulate/calibration.h>

#include <vector>

namespace peal::bench {

// What a row's call in place does, for the straight-line model: by its schedule, or, without one,
// one round of as many bytes as the bus bandwidth counts. What is added up is no term of its own:
// nearly all algorithms send bytes in proportion to it.
struct FitPoint {
  const Row* row;
  comm::Measured terms;
};

// Comment lines, behind the table.
void print_fit(const std::vector<FitPoint>& points);

}  // namespace peal::bench
