// SPDX-License-Identifier: Apache-2.0
#pragma once

// What moving or adding so many bytes takes on a machine: a number of seconds for each byte, or
// what was measured at some sizes, with straight lines between them. A real machine is no straight
// line: caches end, and MPI changes its protocol. (The gap g(m) of the parametrized LogP model:
// Kielmann, Bal, Verstoep 2000.)
//
// Thread safety: a value.

#include <vector>

namespace peal::comm {

class Rate {
 public:
  struct Point {
    double bytes, seconds;
  };

  // The same for any size.
  Rate(double seconds_per_byte = 0) : per_byte_(seconds_per_byte) {}
  // Throws std::invalid_argument unless there are points, in ascending order of bytes, and no time
  // is negative.
  explicit Rate(std::vector<Point> measured);

  // Below the first point as at it; beyond the last one in proportion to the bytes.
  double seconds(double bytes) const;
  // Whether there are points.
  bool measured() const { return !points_.empty(); }
  // Seconds, at large sizes.
  double per_byte() const { return per_byte_; }
  // Bytes and seconds, as they were measured.
  const std::vector<Point>& points() const { return points_; }

 private:
  double per_byte_ = 0;
  std::vector<Point> points_;
};

}  // namespace peal::comm
