// SPDX-License-Identifier: Apache-2.0
// Special functions of one number, for the host and for CUDA alike: the inverse of erf, the
// logarithm of the gamma function, and its derivatives. All are computed in f64, whatever the type
// of the elements is: in f32 the differences that they are made of would leave few digits. DLMF is
// the NIST Digital Library of Mathematical Functions, https://dlmf.nist.gov. All are forced inline,
// for the reason that functors.h gives. Thread safety: pure functions.
#pragma once

#include <peal/autograd/kernels/functors.h>

#include <cmath>
#include <limits>

namespace peal::functor {

inline constexpr double pi = 3.141592653589793;
inline constexpr double without_end = std::numeric_limits<double>::infinity();
inline constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

// erfinv(x) / x by w = -log(1 - x^2), to the digits of f32: of w - 2.5 for w < 5, and of sqrt(w) -
// 3 from there to 16, the last that f32 has (Giles, "Approximating the erfinv function", GPU
// Computing Gems, 2011, table 5).
template <class C>
PEAL_ELEMENT C erfinv_over_x_near(C w) {
  C y = C(2.81022636e-08);
  y = y * w + C(3.43273939e-07);
  y = y * w - C(3.5233877e-06);
  y = y * w - C(4.39150654e-06);
  y = y * w + C(0.00021858087);
  y = y * w - C(0.00125372503);
  y = y * w - C(0.00417768164);
  y = y * w + C(0.246640727);
  return y * w + C(1.50140941);
}
template <class C>
PEAL_ELEMENT C erfinv_over_x_far(C w) {
  C y = C(-0.000200214257);
  y = y * w + C(0.000100950558);
  y = y * w + C(0.00134934322);
  y = y * w - C(0.00367342844);
  y = y * w + C(0.00573950773);
  y = y * w - C(0.0076224613);
  y = y * w + C(0.00943887047);
  y = y * w + C(1.00167406);
  return y * w + C(2.83297682);
}

// y with erf(y) = x: a first guess, then Halley's rule, of which each round has three times the
// digits: once from the digits of f32; beyond them twice, from an error of 0.2 percent (Winitzki,
// "A handy approximation for the error function and its inverse", 2008). Near 1 the rest, 1 - x, is
// exact, and so it is what is compared.
PEAL_ELEMENT double inverse_erf(double x) {
  const double size = std::abs(x), rest = 1 - size;
  if (!(size < 1)) return size == 1 ? x * without_end : no_number;
  const bool near = size < 0.5;
  const double log = near ? std::log1p(-size * size) : std::log(rest * (1 + size));
  double y = 0;
  if (log > -5) {
    y = size * erfinv_over_x_near(-log - 2.5);
  } else if (log > -16) {
    y = size * erfinv_over_x_far(std::sqrt(-log) - 3);
  } else {
    constexpr double share = 0.147;
    const double half = 2 / (pi * share) + log / 2;
    y = std::sqrt(std::sqrt(half * half - log / share) - half);
  }
  for (int i = log > -16 ? 1 : 0; i < 2; ++i) {
    const double error = near ? std::erf(y) - size : rest - std::erfc(y);
    const double step = error * 0.8862269254527580 * std::exp(y * y);  // over the slope
    y -= step / (1 + y * step);
  }
  return std::copysign(y, x);
}

// log |gamma(x)|. The C library's own lgamma writes a global, which threads would do at once.
PEAL_ELEMENT double log_gamma(double x) {
#ifdef __CUDA_ARCH__
  return ::lgamma(x);
#else
  int sign = 0;
  return ::lgamma_r(x, &sign);
#endif
}

// The slope of log_gamma: by psi(x + 1) = psi(x) + 1 / x from a place where the asymptotic series
// has all digits (DLMF 5.11.2), and below 0 by reflection (DLMF 5.5.4). NaN at the poles but 0.
PEAL_ELEMENT double digamma_of(double x) {
  if (x == 0) return std::copysign(without_end, -x);
  double sum = 0;
  if (x < 0) {
    const double behind = x - std::trunc(x);
    if (behind == 0) return no_number;
    sum = -pi / std::tan(pi * behind);
    x = 1 - x;
  }
  for (; x < 10; x += 1) sum -= 1 / x;
  const double w = 1 / (x * x);
  double series = 1.0 / 12;
  series = series * w - 691.0 / 32760;
  series = series * w + 1.0 / 132;
  series = series * w - 1.0 / 240;
  series = series * w + 1.0 / 252;
  series = series * w - 1.0 / 120;
  series = series * w + 1.0 / 12;
  return sum + std::log(x) - 0.5 / x - series * w;
}

// The sum of (a + k)^-s over all k >= 0, for a > 0 and a whole s >= 2: some terms as they are, and
// the rest by Euler's and Maclaurin's formula (DLMF 25.11.5), with Bernoulli's numbers.
PEAL_ELEMENT double zeta_above(double s, double a) {
  double sum = 0;
  for (const double far = 10 + s; a < far; a += 1) sum += std::pow(a, -s);
  const double lead = std::pow(a, 1 - s), power = lead / a, w = 1 / (a * a);
  sum += lead / (s - 1) + power / 2;
  const double factors[] = {1.0 / 12,          -1.0 / 720,
                            1.0 / 30240,       -1.0 / 1209600,
                            1.0 / 47900160,    -691.0 / 1307674368000,
                            1.0 / 74724249600, -3617.0 / 10670622842880000};
  double rising = s / a;
  for (int k = 0; k < 8; ++k) {
    sum += power * rising * factors[k];
    rising *= (s + 2 * k + 1) * (s + 2 * k + 2) * w;
  }
  return sum;
}

// The same for any a. Below 0 the terms on both sides of 0 are two such sums; at a pole infinite.
PEAL_ELEMENT double zeta_of(double s, double a) {
  if (a > 0 || a != a) return zeta_above(s, a);
  const double before = std::ceil(a) - a;  // from the last term below 0 to it
  if (!(before > 0)) return before == 0 ? without_end : no_number;
  const double below = zeta_above(s, before) - zeta_above(s, 1 - a);
  return zeta_above(s, 1 - before) + (std::fmod(s, 2.0) == 0 ? below : -below);
}

// The order-th derivative of digamma (DLMF 5.15.2 and 25.11.12), for a whole order >= 0.
PEAL_ELEMENT double polygamma_of(double order, double x) {
  if (order == 0) return digamma_of(x);
  double value = std::fmod(order, 2.0) == 0 ? -1 : 1, k = 2;
  for (; k <= order && k <= 170; k += 1) value *= k;
  value *= zeta_of(order + 1, x);
  for (; k <= order; k += 1) value *= k;  // the rest of a factorial that no double holds
  return value;
}

}  // namespace peal::functor
