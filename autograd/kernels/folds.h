// SPDX-License-Identifier: Apache-2.0
// Reductions and scans as a start and a step (Reduce, Scan), for the host and for CUDA alike.
// Thread safety: pure functions.
#pragma once

#include <peal/autograd/kernels/functors.h>
#include <peal/autograd/kernels/table.h>

#include <cmath>
#include <limits>
#include <type_traits>

namespace peal::functor {

// Integers wrap round.
template <class S>
PEAL_ELEMENT S times(S a, S b) {
  if constexpr (std::is_integral_v<S> && !std::is_same_v<S, bool>) {
    using U = std::make_unsigned_t<S>;
    return static_cast<S>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return static_cast<S>(a * b);
  }
}

// S is what is folded in: x's type computed, or for products double and i64, for any and all bool.
template <class S>
struct Folding {
  Reduce op;
  PEAL_ELEMENT S start() const {
    constexpr bool real = std::is_floating_point_v<S>;
    switch (op) {
      case Reduce::amax:
        return real ? -std::numeric_limits<S>::infinity() : std::numeric_limits<S>::lowest();
      case Reduce::amin:
        return real ? std::numeric_limits<S>::infinity() : std::numeric_limits<S>::max();
      case Reduce::any:
        return S(0);
      case Reduce::prod:
      case Reduce::all:
        return S(1);
    }
    return S(0);
  }
  PEAL_ELEMENT S operator()(S a, S b) const {
    switch (op) {
      case Reduce::prod:
        return times(a, b);
      case Reduce::amax:
        return b > a || b != b ? b : a;
      case Reduce::amin:
        return b < a || b != b ? b : a;
      case Reduce::any:
        return static_cast<S>(a || b);
      case Reduce::all:
        return static_cast<S>(a && b);
    }
    return a;
  }
};

// The place of the largest or smallest so far, the last of equals, a NaN before all.
template <class C>
struct BestSoFar {
  C best = C(0);
  std::int64_t at = -1;
  PEAL_ELEMENT std::int64_t add(C x, std::int64_t place, bool largest) {
    const bool beats = best == best && (largest ? x >= best : x <= best);
    if (at < 0 || x != x || beats) {
      best = x;
      at = place;
    }
    return at;
  }
};

// A running log of a sum of exponentials, whose largest is taken out.
template <class C>
struct LogSum {
  C most = -std::numeric_limits<C>::infinity(), sum = C(0);
  PEAL_ELEMENT C add(C x) {
    if (x == -std::numeric_limits<C>::infinity()) return value();
    if (x > most) {
      sum = sum == C(0) ? C(1) : sum * std::exp(most - x) + C(1);
      most = x;
    } else {
      sum = x == most ? sum + C(1) : sum + std::exp(x - most);
    }
    return value();
  }
  PEAL_ELEMENT C value() const {
    return sum == C(0) ? -std::numeric_limits<C>::infinity() : most + std::log(sum);
  }
};

}  // namespace peal::functor
