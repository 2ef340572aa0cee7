// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/simulate/rate.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace peal::comm {

Rate::Rate(std::vector<Point> measured) : points_(std::move(measured)) {
  if (points_.empty()) throw std::invalid_argument("Rate: expected points, got none");
  for (std::size_t i = 0; i < points_.size(); ++i) {
    const bool ascends = i == 0 ? points_[0].bytes > 0 : points_[i].bytes > points_[i - 1].bytes;
    if (!ascends || !(points_[i].seconds >= 0)) {
      throw std::invalid_argument(
          "Rate: expected points in ascending order of bytes, from above 0, and times of at least "
          "0");
    }
  }
  per_byte_ = points_.back().seconds / points_.back().bytes;
}

double Rate::seconds(double bytes) const {
  if (points_.empty() || bytes >= points_.back().bytes) return bytes * per_byte_;
  const auto after = std::ranges::upper_bound(points_, bytes, {}, &Point::bytes);
  if (after == points_.begin()) return after->seconds;
  const Point &a = *(after - 1), &b = *after;
  return a.seconds + (b.seconds - a.seconds) * (bytes - a.bytes) / (b.bytes - a.bytes);
}

}  // namespace peal::comm
