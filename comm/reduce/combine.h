// SPDX-License-Identifier: Apache-2.0
// Reduction operators: how two elements become one, for the kernels of the devices: the reductions
// of reduce_op.h on the types in which they are computed (not f16 and bf16). Those of the CPU,
// which take vectors of elements, are in cpu/combine_body.h, and give the same bits. Thread safety:
// pure.
#pragma once

#include <peal/autograd/core/half.h>
#include <peal/comm/reduce/reduce_op.h>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace peal::comm {

// avg and premul_sum add: the rest of them is done once, before or after.
struct Added {
  template <class T>
  PEAL_HOST_DEVICE T operator()(T a, T b) const {
    if constexpr (std::same_as<T, bool>) {
      return a || b;
    } else if constexpr (std::is_integral_v<T>) {  // wraps around, as unsigned arithmetic does
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};

struct Multiplied {
  template <class T>
  PEAL_HOST_DEVICE T operator()(T a, T b) const {
    if constexpr (std::same_as<T, bool>) {
      return a && b;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
    } else {
      return a * b;
    }
  }
};

// NaN wins; among equals (zeros of both signs) the one with the sign bit is the smaller.
struct Smaller {
  template <class T>
  PEAL_HOST_DEVICE T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
      if (a == b) return std::signbit(a) ? a : b;
    }
    return b < a ? b : a;
  }
};

struct Larger {
  template <class T>
  PEAL_HOST_DEVICE T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (a != a || b != b) return std::numeric_limits<T>::quiet_NaN();
      if (a == b) return std::signbit(a) ? b : a;
    }
    return a < b ? b : a;
  }
};

// Of integers and bool.
struct BitAnd {
  template <class T>
  PEAL_HOST_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <class T>
  PEAL_HOST_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <class T>
  PEAL_HOST_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

// f(the functor of op) for elements of type T. REQUIRES: has_reduction(), or nothing is called.
template <class T, class F>
PEAL_HOST_DEVICE inline void with_combination(ReduceOp op, const F& f) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      return f(Added());
    case ReduceOp::prod:
      return f(Multiplied());
    case ReduceOp::min:
      return f(Smaller());
    case ReduceOp::max:
      return f(Larger());
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::band) return f(BitAnd());
    if (op == ReduceOp::bor) return f(BitOr());
    if (op == ReduceOp::bxor) return f(BitXor());
  }
}

}  // namespace peal::comm
