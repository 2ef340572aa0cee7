// SPDX-License-Identifier: Apache-2.0
// Exponentials and what is made of them, in f32, without branches, so that they become vectors.
// Part of loops_body.h, and under its rule about symbols.
#pragma once

#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/loops_width.h>
#include <peal/autograd/kernels/pointwise_functions.h>

#include <cstdint>

namespace peal::cpu::PEAL_LEVEL {
namespace {

// V is float, or a vector of them; I is the integers as wide.
template <class V, class I>
PEAL_ELEMENT V power_of_two(I n) {  // for n in [-126, 127]
  return __builtin_bit_cast(V, (n + 127) << 23);
}

// e^x = part 2^whole: x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by a polynomial of the sixth
// degree.
template <class V, class I>
struct Reduced {
  V part;
  I whole;
};
template <class V, class I>
PEAL_ELEMENT Reduced<V, I> reduced(V x) {
  const V round = V{} + 0x1.8p23f;  // adding it leaves the integer nearest
  const V shifted = x * 1.44269504f + round;
  const V n = shifted - round;
  const V r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  V y = V{} + 0.00138637867f;
  y = y * r + 0.00836747581f;
  y = y * r + 0.0416672376f;
  y = y * r + 0.166665341f;
  y = y * r + 0.5f;
  y = y * r + 1.0f;
  y = y * r + 1.0f;
  return {y, __builtin_bit_cast(I, shifted) - __builtin_bit_cast(I, round)};
}

// e^x within 2 units in the last place; 0, infinity and NaN where they belong.
template <class V, class I>
PEAL_ELEMENT V exponential_of(V x) {
  const V least = V{} - 104.0f, most = V{} + 89.0f;
  x = x < least ? least : x;
  x = x > most ? most : x;
  const Reduced<V, I> at = reduced<V, I>(x);
  // In two steps, since 2^n alone need not be a normal number.
  const I half = at.whole >> 1;
  return at.part * power_of_two<V, I>(half) * power_of_two<V, I>(at.whole - half);
}
PEAL_ELEMENT float exponential(float x) { return exponential_of<float, std::int32_t>(x); }

// The same of what is at most 88: less work, and 0 for what is no normal number. Numbers that are
// none take a hundred times as long to multiply on some CPUs, and hidden scores would all make one.
template <class V, class I>
PEAL_ELEMENT V falling_exponential_of(V x) {
  const V least = V{} - 87.3365402f;  // e^least is above 2^-126
  const Reduced<V, I> at = reduced<V, I>(x);
  const V y = at.part * power_of_two<V, I>(at.whole);  // anything below `least`
  return x < least ? V{} : y;
}
PEAL_ELEMENT float falling_exponential(float x) {
  return falling_exponential_of<float, std::int32_t>(x);
}

PEAL_ELEMENT float logistic(float x) { return 1.0f / (1.0f + exponential(-x)); }

// e^x - 1, near 0 by Taylor's series, so that the relative error stays small there.
PEAL_ELEMENT float exponential_less_one(float x) {
  float near = 1.0f / 5040;
  near = near * x + 1.0f / 720;
  near = near * x + 1.0f / 120;
  near = near * x + 1.0f / 24;
  near = near * x + 1.0f / 6;
  near = near * x + 0.5f;
  near = near * x * x + x;
  const float far = exponential(x) - 1.0f;
  return (x < 0 ? -x : x) < 0.35f ? near : far;
}

// log(1 + x) for x in [0, 1]: 2 artanh(x / (2 + x)), by its series (the rest is below 2^-26).
PEAL_ELEMENT float logarithm_of_one_and(float x) {
  const float ratio = x / (2.0f + x), square = ratio * ratio;
  float sum = 1.0f / 13;
  sum = sum * square + 1.0f / 11;
  sum = sum * square + 1.0f / 9;
  sum = sum * square + 1.0f / 7;
  sum = sum * square + 1.0f / 5;
  sum = sum * square + 1.0f / 3;
  return 2.0f * (sum * square * ratio + ratio);
}

// log x for a normal x > 0: x = 2^n (1 + r) with 1 + r from the root of a half to that of 2, and
// log(1 + r) by the polynomial of Moshier's Cephes (logf).
PEAL_ELEMENT float logarithm(float x) {
  const auto bits = __builtin_bit_cast(std::int32_t, x);
  const std::int32_t power = (bits - 0x3f3504f3) >> 23;
  const float n = static_cast<float>(power);
  const float r = __builtin_bit_cast(float, bits - (power << 23)) - 1.0f, square = r * r;
  float sum = 7.0376836292e-2f;
  sum = sum * r - 1.1514610310e-1f;
  sum = sum * r + 1.1676998740e-1f;
  sum = sum * r - 1.2420140846e-1f;
  sum = sum * r + 1.4249322787e-1f;
  sum = sum * r - 1.6668057665e-1f;
  sum = sum * r + 2.0000714765e-1f;
  sum = sum * r - 2.4999993993e-1f;
  sum = sum * r + 3.3333331174e-1f;
  return n * 0.693359375f + (r + (sum * r * square - n * 2.12194440e-4f - 0.5f * square));
}

// For |x| < 1 the guess that special_functions.h begins with, which has all digits of f32.
PEAL_ELEMENT float inverse_error_function(float x) {
  const float size = x < 0 ? -x : x;
  const float log = -logarithm((1.0f - size) * (1.0f + size));
  const float root = __builtin_sqrtf(log < 5.0f ? 9.0f : log);
  const float near = functor::erfinv_over_x_near(log - 2.5f);
  const float y = x * (log < 5.0f ? near : functor::erfinv_over_x_far(root - 3.0f));
  // Where the number is 1, or none, or beyond.
  const float outside = size == 1.0f ? x * __builtin_inff() : __builtin_nanf("");
  return size < 1.0f ? y : outside;
}

// Near 0 by Taylor's series, so that the relative error stays small there.
PEAL_ELEMENT float hyperbolic_tangent(float x) {
  const float size = x < 0 ? -x : x, square = x * x;
  float near = -1382.0f / 155925;
  near = near * square + 62.0f / 2835;
  near = near * square - 17.0f / 315;
  near = near * square + 2.0f / 15;
  near = near * square - 1.0f / 3;
  near = near * square * x + x;
  const float far = 1.0f - 2.0f / (1.0f + exponential(2.0f * size));
  return size < 0.35f ? near : (x < 0 ? -far : far);
}

// Normal distribution and its density at x, from one exponential: Abramowitz and Stegun, Handbook
// of Mathematical Functions, 7.1.26 (error of erf below 1.5e-7).
struct Normal {
  float distribution, density;
};
PEAL_ELEMENT Normal normal_at(float x) {
  const float size = x < 0 ? -x : x;
  const float bell = falling_exponential(-0.5f * x * x);
  const float t = 1.0f / (1.0f + 0.3275911f * 0.707106781f * size);
  float tail = 1.061405429f;
  tail = tail * t - 1.453152027f;
  tail = tail * t + 1.421413741f;
  tail = tail * t - 0.284496736f;
  tail = tail * t + 0.254829592f;
  tail = 0.5f * tail * t * bell;
  return {x < 0 ? tail : 1.0f - tail, 0.398942280f * bell};
}

// What gelu's approximation by tanh takes the tanh of, doubled: 0.5 (1 + tanh u) = logistic(2 u).
PEAL_ELEMENT float gelu_argument(float x) { return 1.59576912f * x * (1.0f + 0.044715f * x * x); }

// What the functions of pointwise.def are made of.
struct Vectors {
  static PEAL_ELEMENT float exp(float x) { return exponential(x); }
  static PEAL_ELEMENT float expm1(float x) { return exponential_less_one(x); }
  static PEAL_ELEMENT float tanh(float x) { return hyperbolic_tangent(x); }
  static PEAL_ELEMENT float log1p(float x) { return logarithm_of_one_and(x); }
};
template <Pointwise op>
struct Of {
  float s, t;
  PEAL_ELEMENT float operator()(float x) const {
    return functor::PointwiseFunction<op>::template value<Vectors>(x, s, t);
  }
  PEAL_ELEMENT float slope(float kept) const {
    return functor::PointwiseFunction<op>::template slope<Vectors>(kept, s, t);
  }
};

struct Gelu {
  PEAL_ELEMENT float operator()(float x) const { return x * normal_at(x).distribution; }
  PEAL_ELEMENT float slope(float x) const {
    const Normal n = normal_at(x);
    return n.distribution + x * n.density;
  }
};
struct InverseErrorFunction {
  PEAL_ELEMENT float operator()(float x) const { return inverse_error_function(x); }
  PEAL_ELEMENT float slope(float y) const { return 0.886226925f * exponential(y * y); }
};
struct GeluTanh {
  PEAL_ELEMENT float operator()(float x) const { return x * logistic(gelu_argument(x)); }
  PEAL_ELEMENT float slope(float x) const {
    const float s = logistic(gelu_argument(x));
    return s + x * s * (1.0f - s) * 1.59576912f * (1.0f + 3 * 0.044715f * x * x);
  }
};

template <class T, class F>
void math_loop(F f, T* out, const T* x, std::int64_t n) {
  in_strips(out, n, [=](std::int64_t i) { return f(static_cast<float>(x[i])); });
}

// The functions that are made of Vectors alone, and those of them whose slopes are not products.
#define PEAL_VECTOR_FUNCTIONS(each) \
  each(exp) each(tanh) each(sigmoid) each(expm1) PEAL_VECTOR_SLOPES(each)
#define PEAL_VECTOR_SLOPES(each)                                                        \
  each(silu) each(mish) each(softplus) each(logsigmoid) each(elu) each(selu) each(celu) \
      each(tanhshrink)

template <class T>
bool math(Pointwise op, T* out, const T* x, float s, float t, std::int64_t n) {
  switch (op) {
    case Pointwise::gelu:
      return math_loop(Gelu{}, out, x, n), true;
    case Pointwise::gelu_tanh:
      return math_loop(GeluTanh{}, out, x, n), true;
    case Pointwise::erfinv:
      return math_loop(InverseErrorFunction{}, out, x, n), true;
#define PEAL_CASE(name) \
  case Pointwise::name: \
    return math_loop(Of<Pointwise::name>{s, t}, out, x, n), true;
      PEAL_VECTOR_FUNCTIONS(PEAL_CASE)
#undef PEAL_CASE
    default:
      return false;
  }
}

template <class T, class F>
void slope_loop(F f, T* dx, const T* dy, const T* x, std::int64_t n) {
  in_strips(dx, n, [=](std::int64_t i) {
    return static_cast<float>(dy[i]) * f.slope(static_cast<float>(x[i]));
  });
}

template <class T>
bool math_backward(Pointwise op, T* dx, const T* dy, const T* x, float s, float t, std::int64_t n) {
  switch (op) {
    case Pointwise::gelu:
      return slope_loop(Gelu{}, dx, dy, x, n), true;
    case Pointwise::gelu_tanh:
      return slope_loop(GeluTanh{}, dx, dy, x, n), true;
    case Pointwise::erfinv:
      return slope_loop(InverseErrorFunction{}, dx, dy, x, n), true;
#define PEAL_CASE(name) \
  case Pointwise::name: \
    return slope_loop(Of<Pointwise::name>{s, t}, dx, dy, x, n), true;
      PEAL_VECTOR_SLOPES(PEAL_CASE)
#undef PEAL_CASE
    default:
      return false;
  }
}
#undef PEAL_VECTOR_SLOPES
#undef PEAL_VECTOR_FUNCTIONS

template <class T>
constexpr PointwiseLoops<T> pointwise_loops_here = {.math = math<T>,
                                                    .math_backward = math_backward<T>};

}  // namespace
}  // namespace peal::cpu::PEAL_LEVEL
