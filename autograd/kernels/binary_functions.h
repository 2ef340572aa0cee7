// SPDX-License-Identifier: Apache-2.0
// The functions of two elements that are not arithmetic (BinaryMath), for the host and for CUDA
// alike. What a type does not serve is its first operand, and is refused before (serves()). An
// integer over 0 is 0, and no quotient traps. Thread safety: pure functions.
#pragma once

#include <peal/autograd/kernels/functors.h>
#include <peal/autograd/kernels/table.h>

#include <cmath>
#include <type_traits>

namespace peal {

inline bool serves(BinaryMath op, DType dtype) {
  const bool of_bits = op >= BinaryMath::bitwise_and && op <= BinaryMath::right_shift;
  if (dtype == DType::boolean)
    return of_bits ? op <= BinaryMath::bitwise_xor : op <= BinaryMath::minimum;
  return is_floating(dtype) ? !of_bits : op < BinaryMath::pow;
}

namespace functor {

PEAL_ELEMENT bool of_bools(BinaryMath op, bool a, bool b) {
  switch (op) {
    case BinaryMath::maximum:
    case BinaryMath::bitwise_or:
      return a || b;
    case BinaryMath::minimum:
    case BinaryMath::bitwise_and:
      return a && b;
    case BinaryMath::bitwise_xor:
      return a != b;
    default:
      return a;
  }
}

// Compilers warn where an unsigned number is compared with 0.
template <class T>
PEAL_ELEMENT bool below_zero([[maybe_unused]] T value) {
  if constexpr (std::is_signed_v<T>) {
    return value < T(0);
  } else {
    return false;
  }
}

template <class T>
PEAL_ELEMENT T of_integers(BinaryMath op, T a, T b) {
  // Computed in a type that does not trap where the most negative number has no opposite.
  using U = std::make_unsigned_t<T>;
  constexpr int bits = 8 * static_cast<int>(sizeof(T));
  const bool opposite = std::is_signed_v<T> && b == static_cast<T>(-1), none = b == T(0);
  const T divisor = opposite || none ? T(1) : b;
  const T rest = static_cast<T>(a % divisor);
  const bool away = rest != T(0) && below_zero(rest) != below_zero(divisor);
  const bool past = below_zero(b) || b >= static_cast<T>(bits);
  switch (op) {
    case BinaryMath::maximum:
    case BinaryMath::fmax:
      return a > b ? a : b;
    case BinaryMath::minimum:
    case BinaryMath::fmin:
      return a < b ? a : b;
    case BinaryMath::remainder:
      return static_cast<T>(away ? rest + divisor : rest);
    case BinaryMath::fmod:
      return rest;
    case BinaryMath::floor_divide:
      if (none) return T(0);
      if (opposite) return static_cast<T>(U(0) - static_cast<U>(a));
      return static_cast<T>(a / divisor - (away ? 1 : 0));
    case BinaryMath::bitwise_and:
      return static_cast<T>(a & b);
    case BinaryMath::bitwise_or:
      return static_cast<T>(a | b);
    case BinaryMath::bitwise_xor:
      return static_cast<T>(a ^ b);
    case BinaryMath::left_shift:
      return past ? T(0) : static_cast<T>(static_cast<U>(a) << (past ? T(0) : b));
    case BinaryMath::right_shift:
      return static_cast<T>(a >> (past ? static_cast<T>(bits - 1) : b));
    default:
      return a;
  }
}

template <class C>
PEAL_ELEMENT C of_reals(BinaryMath op, C a, C b) {
  switch (op) {
    case BinaryMath::maximum:
      return a > b || a != a ? a : b;
    case BinaryMath::minimum:
      return a < b || a != a ? a : b;
    case BinaryMath::fmax:
      return std::fmax(a, b);
    case BinaryMath::fmin:
      return std::fmin(a, b);
    case BinaryMath::remainder: {
      const C rest = std::fmod(a, b);
      return rest != C(0) && (b < C(0)) != (rest < C(0)) ? rest + b : rest;
    }
    case BinaryMath::fmod:
      return std::fmod(a, b);
    case BinaryMath::floor_divide: {
      // As Python's: of the exact quotient, which a / b may be rounded past.
      if (b == C(0)) return a / b;
      const C rest = std::fmod(a, b);
      C quotient = (a - rest) / b;
      if (rest != C(0) && (b < C(0)) != (rest < C(0))) quotient -= C(1);
      if (quotient == C(0)) return std::copysign(C(0), a / b);
      const C whole = std::floor(quotient);
      return quotient - whole > C(0.5) ? whole + C(1) : whole;
    }
    case BinaryMath::pow:
      return std::pow(a, b);
    case BinaryMath::atan2:
      return std::atan2(a, b);
    case BinaryMath::hypot:
      return std::hypot(a, b);
    case BinaryMath::logaddexp: {
      if (a == b && std::abs(a) > C(3e38)) return a;  // infinite, or as good as that
      const C most = a > b ? a : b;
      return most + std::log1p(std::exp(-std::abs(a - b)));
    }
    case BinaryMath::xlogy:
      return b != b ? b : a == C(0) ? C(0) : a * std::log(b);
    default:
      return a;
  }
}

template <class T>
PEAL_ELEMENT T of_two(BinaryMath op, T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return of_bools(op, a, b);
  } else if constexpr (std::is_integral_v<T>) {
    return of_integers(op, a, b);
  } else {
    return of_reals(op, a, b);
  }
}

}  // namespace functor
}  // namespace peal
