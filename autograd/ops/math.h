// SPDX-License-Identifier: Apache-2.0
// Functions of one element; outside a function's domain the result is NaN or infinite, as in
// PyTorch. Of integers and masks (bool) most are computed in f32. Those that map integers to
// integers keep their type, and are refused for masks: abs, sign, square, floor, ceil, round,
// trunc, clamp (to bounds that are integers or infinite), and pow by an integer from 0 to 64 (by a
// floating number the result is f32). Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <limits>
#include <optional>

namespace peal {

Tensor exp(const Tensor& x);
Tensor exp2(const Tensor& x);
Tensor expm1(const Tensor& x);  // e^x - 1, and log(1 + x): exact near 0
Tensor log1p(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);  // 1 / sqrt(x)
Tensor reciprocal(const Tensor& x);
Tensor square(const Tensor& x);
// A whole number that is floating is one: pow(x, 2.0) of integers is f32, as x * 2.0 is.
Tensor pow(const Tensor& x, Scalar exponent);

Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);
Tensor sinc(const Tensor& x);  // sin(pi x) / (pi x), 1 at 0
Tensor deg2rad(const Tensor& x);
Tensor rad2deg(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor erfc(const Tensor& x);
Tensor erfinv(const Tensor& x);  // infinite at -1 and 1
// The logarithm of |gamma(x)|, its slope, and the n-th derivative of that. At the poles 0, -1, ...
// lgamma is infinite, digamma NaN (at 0 infinite), polygamma infinite.
Tensor lgamma(const Tensor& x);
Tensor digamma(const Tensor& x);
Tensor polygamma(std::int64_t n, const Tensor& x);
// log(x / (1 - x)), of x clamped to [eps, 1 - eps] where eps is given.
Tensor logit(const Tensor& x, std::optional<double> eps = {});

// The gradients of these, but frac, are 0.
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor trunc(const Tensor& x);
Tensor round(const Tensor& x);  // halves to the even neighbour
Tensor round(const Tensor& x, int decimals);
Tensor frac(const Tensor& x);  // x - trunc(x)
Tensor sign(const Tensor& x);  // -1, 0 or 1

Tensor abs(const Tensor& x);  // the gradient at 0 is 0
// min(max(x, low), high); where low > high all become high. The gradient passes between the bounds,
// and not at them, as in PyTorch 2.15 (in 1.13 it does).
Tensor clamp(const Tensor& x, double low, double high = std::numeric_limits<double>::infinity());
// clamp() to one bound, with its gradient. The number is promoted (promotion.h): integers are held
// to 2.5 as f32. To a bound that is NaN all become NaN.
Tensor clamp_min(const Tensor& x, Scalar low);
Tensor clamp_max(const Tensor& x, Scalar high);

}  // namespace peal
