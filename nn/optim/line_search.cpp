// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/optim/line_search.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace peal::nn {
namespace {

// Where the cubic through two points and their slopes is least, within bounds.
double least_of_cubic(const LinePoint& a, const LinePoint& b, double low, double high) {
  const double d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.step - b.step);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const auto [left, right] = a.step <= b.step ? std::pair(&a, &b) : std::pair(&b, &a);
  const double place =
      right->step - (right->step - left->step) *
                        ((right->slope + d2 - d1) / (right->slope - left->slope + 2 * d2));
  // As Python's min and max have it where `place` is NaN.
  const double above = low > place ? low : place;
  return high < above ? high : above;
}

}  // namespace

LineSearchResult strong_wolfe(const std::function<LinePoint(double)>& at, const LinePoint& start,
                              double first, double direction_size, const LineSearchOptions& o) {
  LinePoint now = at(first), before = start;
  std::int64_t evaluations = 1, tried = 0;
  std::array<LinePoint, 2> bracket{start, now};
  bool done = false, found = false;
  const auto too_high = [&](const LinePoint& point) {
    return point.loss > start.loss + o.decrease * point.step * start.slope;
  };
  const auto flat = [&](const LinePoint& point) {
    return std::abs(point.slope) <= -o.curvature * start.slope;
  };
  // Out, until an interval holds such a point.
  while (tried < o.most && !found) {
    if (too_high(now) || (tried > 1 && now.loss >= before.loss)) {
      bracket = {before, now};
      found = true;
    } else if (flat(now)) {
      return {now, evaluations};
    } else if (now.slope >= 0) {
      bracket = {before, now};
      found = true;
    } else {
      const double next =
          least_of_cubic(before, now, now.step + 0.01 * (now.step - before.step), now.step * 10);
      before = now;
      now = at(next);
      ++evaluations;
      ++tried;
    }
  }
  if (!found) bracket = {start, now};
  // In: `low` is the place of the lower of both ends.
  std::size_t low = bracket[0].loss <= bracket[1].loss ? 0 : 1;
  bool stuck = false;
  while (!done && tried < o.most) {
    if (std::abs(bracket[1].step - bracket[0].step) * direction_size < o.tolerance_change) break;
    const auto [least, most] = std::minmax({bracket[0].step, bracket[1].step});
    double next = least_of_cubic(bracket[0], bracket[1], least, most);
    // Close to an end twice, or at one: a tenth of the interval away from it.
    const double margin = 0.1 * (most - least);
    if (std::min(most - next, next - least) < margin) {
      if (stuck || next >= most || next <= least) {
        next = std::abs(next - most) < std::abs(next - least) ? most - margin : least + margin;
        stuck = false;
      } else {
        stuck = true;
      }
    } else {
      stuck = false;
    }
    now = at(next);
    ++evaluations;
    ++tried;
    if (too_high(now) || now.loss >= bracket[low].loss) {
      bracket[1 - low] = now;
      low = bracket[0].loss <= bracket[1].loss ? 0 : 1;
    } else {
      if (flat(now)) {
        done = true;
      } else if (now.slope * (bracket[1 - low].step - bracket[low].step) >= 0) {
        bracket[1 - low] = bracket[low];
      }
      bracket[low] = now;
    }
  }
  return {bracket[low], evaluations};
}

}  // namespace peal::nn
