// SPDX-License-Identifier: Apache-2.0
// Functions of two elements beside arithmetic. Operands broadcast (broadcast.h), and those of
// several types, numbers among them, are promoted (promotion.h). What divides integers by 0 is an
// Error where the host sees it: of numbers, and on the CPU; on a device that quotient is 0. Thread
// safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <limits>

namespace peal {

// The larger and the smaller, NaN where either is; equals get half of the gradient each. fmax and
// fmin: the other of a NaN, and of equals the first gets it.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
inline Tensor max(const Tensor& a, const Tensor& b) { return maximum(a, b); }
inline Tensor min(const Tensor& a, const Tensor& b) { return minimum(a, b); }
Tensor fmax(const Tensor& a, const Tensor& b);
Tensor fmin(const Tensor& a, const Tensor& b);
// x between bounds of its own each; where low > high it is high.
Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high);
// maximum(), and minimum(): broadcast.
Tensor clamp_min(const Tensor& x, const Tensor& low);
Tensor clamp_max(const Tensor& x, const Tensor& high);

// a^b. Integers have integer powers, which wrap round, and of negative exponents are cut off (1 / 2
// is 0).
Tensor pow(const Tensor& base, const Tensor& exponent);
Tensor pow(Scalar base, const Tensor& exponent);

// The whole number below a / b (a // b of Python). Not recorded.
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, Scalar b);
// a / b rounded down, or towards 0: integers stay integers. Not recorded.
enum class Rounding : std::uint8_t { floor, trunc };
Tensor div(const Tensor& a, const Tensor& b, Rounding rounding);
Tensor div(const Tensor& a, Scalar b, Rounding rounding);
// What that leaves, of the divisor's sign (a % b of Python), or of the dividend's.
Tensor remainder(const Tensor& a, const Tensor& b);
Tensor remainder(const Tensor& a, Scalar b);
Tensor remainder(Scalar a, const Tensor& b);
Tensor fmod(const Tensor& a, const Tensor& b);
Tensor fmod(const Tensor& a, Scalar b);
inline Tensor operator%(const Tensor& a, const Tensor& b) { return remainder(a, b); }
inline Tensor operator%(const Tensor& a, Scalar b) { return remainder(a, b); }
inline Tensor operator%(Scalar a, const Tensor& b) { return remainder(a, b); }

// Of integers these are f32.
Tensor atan2(const Tensor& y, const Tensor& x);      // the angle of the point (x, y)
Tensor hypot(const Tensor& a, const Tensor& b);      // sqrt(a a + b b)
Tensor logaddexp(const Tensor& a, const Tensor& b);  // log(e^a + e^b)
Tensor xlogy(const Tensor& x, const Tensor& y);      // x log(y), 0 where x is 0

// Bits of integers, and truths of masks; shifts by less than 0, or past the last bit, leave none
// (to the right: the sign's). a & b, a | b and a ^ b are choose.h's.
Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_and(const Tensor& a, Scalar b);
Tensor bitwise_or(const Tensor& a, Scalar b);
Tensor bitwise_xor(const Tensor& a, Scalar b);
Tensor bitwise_not(const Tensor& x);
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b);
Tensor bitwise_left_shift(const Tensor& a, Scalar b);
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b);
Tensor bitwise_right_shift(const Tensor& a, Scalar b);

// a + weight (b - a); x + value a b; x + value a / b.
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight);
Tensor lerp(const Tensor& a, const Tensor& b, double weight);
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value = 1);

}  // namespace peal
