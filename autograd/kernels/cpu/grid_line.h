// SPDX-License-Identifier: Apache-2.0
// One dimension of an image that is read at places (ops/grid_sample.h): of which elements a place
// is made, and how much each counts, by the formulas of ops/grid_sample.cpp. Thread safety: a pure
// function.
#pragma once

#include <peal/autograd/kernels/geometry.h>

#include <cmath>
#include <cstdint>

namespace peal::cpu {

template <class T>
struct GridTap {
  std::int64_t from;  // -1: outside, where all is 0
  T weight, slope;    // by the place, from -1 to 1
};

template <class T, GridTaps how>
class GridLine {
 public:
  static constexpr int count = how == GridTaps::nearest ? 1 : how == GridTaps::bilinear ? 2 : 4;

  GridLine(std::int64_t size, const GridGeometry& o)
      : edge_(o.edge),
        last_(static_cast<T>(size - 1)),
        span_(static_cast<T>(o.align_corners ? size - 1 : size)),
        shift_(o.align_corners ? T(0) : T(0.5)) {}

  void operator()(T at, GridTap<T>* taps) const {
    const T half = span_ / 2;
    T place = (at + 1) * half - shift_, slope = half;
    // From here on nothing changes any more; infinite places are there as well.
    if (edge_ != GridEdge::reflection) bound(place, slope, -3, last_ + 3);
    if constexpr (how == GridTaps::bicubic) {
      cubic(place, slope, taps);
      return;
    }
    fold(place, slope);
    if constexpr (how == GridTaps::nearest) {
      taps[0] = tap(std::rint(place), place - place + 1, 0);  // NaN stays
      return;
    }
    // Within the bounds, or NaN, which has no integer. std::floor is a call.
    T first = place == place ? static_cast<T>(static_cast<std::int64_t>(place)) : T(0);
    if (first > place) first -= 1;
    const T second = place - first;
    taps[0] = tap(first, 1 - second, -slope);
    taps[1] = tap(first + 1, second, slope);
  }

 private:
  static void bound(T& place, T& slope, T low, T high) {
    if (!(place > low && place < high)) slope = 0;
    const T above = place < low ? low : place;
    place = above > high ? high : above;
  }

  // Where it is within the image, for what is outside of it.
  void fold(T& place, T& slope) const {
    if (edge_ == GridEdge::zeros) return;
    if (edge_ == GridEdge::reflection && span_ > 0) {
      const T from = place + shift_, away = std::abs(from);
      T rest = away;
      bool forth = true;
      if (!(away < span_)) {
        rest = std::fmod(away, span_);
        forth = std::fmod(std::floor(away / span_), T(2)) == 0;
      }
      place = (forth ? rest : span_ - rest) - shift_;
      slope *= static_cast<T>((from > 0) - (from < 0)) * (forth ? T(1) : T(-1));
    }
    bound(place, slope, 0, last_);
  }

  // The weight stays as it is outside, where it may be NaN.
  GridTap<T> tap(T place, T weight, T slope) const {
    const bool inside = place >= 0 && place <= last_;
    return {inside ? static_cast<std::int64_t>(place) : -1, weight, slope};
  }

  // Keys, "Cubic convolution interpolation for digital image processing", 1981.
  void cubic(T place, T slope, GridTap<T>* taps) const {
    constexpr T a = T(-0.75);
    const auto near = [](T d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    const auto near_slope = [](T d) { return (3 * (a + 2) * d - 2 * (a + 3)) * d; };
    const auto far = [](T d) {  // of d less 1
      const T e = d + 1;
      return ((a * e - 5 * a) * e + 8 * a) * e - 4 * a;
    };
    const auto far_slope = [](T d) {
      const T e = d + 1;
      return (3 * a * e - 10 * a) * e + 8 * a;
    };
    const T first = std::floor(place), t = place - first, u = 1 - t;
    const T weights[] = {far(t), near(t), near(u), far(u)};
    const T slopes[] = {far_slope(t), near_slope(t), -near_slope(u), -far_slope(u)};
    for (int i = 0; i < count; ++i) {
      T at = first + static_cast<T>(i - 1), constant = 0;
      fold(at, constant);
      taps[i] = tap(at, weights[i], slopes[i] * slope);
    }
  }

  GridEdge edge_;
  T last_, span_, shift_;  // the last place; the image's length, and where it begins, turned round
};

}  // namespace peal::cpu
