// SPDX-License-Identifier: Apache-2.0
#pragma once

// The three numbers of a machine, from measured runs: least squares of the cost model
//   seconds = rounds * latency + sent * per_byte + reduced * reduce_per_byte.
//
// Errors are relative (a run of a second must not outweigh one of a microsecond), and no number is
// negative. Thread safety: pure functions.

#include <span>

namespace peal::comm {

struct Measured {
  double rounds = 0, bytes_sent = 0, bytes_reduced = 0;  // of the rank that has most
  double seconds = 0;
};

struct Calibration {
  double latency = 0, per_byte = 0, reduce_per_byte = 0;  // seconds
  double median_error = 0, worst_error = 0;  // |model - measured| / measured, over the points
};

double model_seconds(const Calibration& machine, const Measured& run);

// Where the points cannot tell two numbers apart (a ring always sends twice what it adds), one of
// them is 0 and the other stands for both. Throws std::invalid_argument without points, or if a
// time is not positive.
Calibration calibrate(std::span<const Measured> points);

}  // namespace peal::comm
