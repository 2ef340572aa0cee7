// SPDX-License-Identifier: Apache-2.0
// Exponentials and what is made of them, in f32, without branches, so that they become vectors.
// Part of loops_body.h, and under its rule about symbols.
#pragma once

#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/loops_vector.h>
#include <peal/autograd/kernels/pointwise_functions.h>

#include <cstdint>

namespace peal::cpu::PEAL_LEVEL {
namespace {

// V is float, or a vector of them; I is the integers as wide.
template <class V, class I>
PEAL_ELEMENT V power_of_two(I n) {  // for n in [-126, 127]
  return __builtin_bit_cast(V, (n + 127) << 23);
}

// e^x within 2 units in the last place; 0, infinity and NaN where they belong. x = n ln 2 + r with
// |r| <= ln 2 / 2, and e^r by Taylor's series to the seventh power (the rest is below 2^-26).
template <class V, class I>
PEAL_ELEMENT V exponential_of(V x) {
  const V least = V{} - 104.0f, most = V{} + 89.0f;
  x = x < least ? least : x;
  x = x > most ? most : x;
  const V round = V{} + 0x1.8p23f;  // adding it leaves the integer nearest
  const V shifted = x * 1.44269504f + round;
  const V n = shifted - round;
  const V r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
  V y = V{} + 1.0f / 5040;
  y = y * r + 1.0f / 720;
  y = y * r + 1.0f / 120;
  y = y * r + 1.0f / 24;
  y = y * r + 1.0f / 6;
  y = y * r + 0.5f;
  y = y * r + 1.0f;
  y = y * r + 1.0f;
  // In two steps, since 2^n alone need not be a normal number.
  const I whole = __builtin_bit_cast(I, shifted) - __builtin_bit_cast(I, round);
  const I half = whole >> 1;
  return y * power_of_two<V, I>(half) * power_of_two<V, I>(whole - half);
}
PEAL_ELEMENT float exponential(float x) { return exponential_of<float, std::int32_t>(x); }

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
  const float bell = exponential(-0.5f * x * x);
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
struct GeluTanh {
  PEAL_ELEMENT float operator()(float x) const { return x * logistic(gelu_argument(x)); }
  PEAL_ELEMENT float slope(float x) const {
    const float s = logistic(gelu_argument(x));
    return s + x * s * (1.0f - s) * 1.59576912f * (1.0f + 3 * 0.044715f * x * x);
  }
};

template <class F>
void math_loop(F f, float* out, const float* x, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = f(x[i]);
}

// The functions that are made of Vectors alone, and those of them whose slopes are not products.
#define PEAL_VECTOR_FUNCTIONS(each) \
  each(exp) each(tanh) each(sigmoid) each(expm1) PEAL_VECTOR_SLOPES(each)
#define PEAL_VECTOR_SLOPES(each)                                                        \
  each(silu) each(mish) each(softplus) each(logsigmoid) each(elu) each(selu) each(celu) \
      each(tanhshrink)

bool math(Pointwise op, float* out, const float* x, float s, float t, std::int64_t n) {
  switch (op) {
    case Pointwise::gelu:
      return math_loop(Gelu{}, out, x, n), true;
    case Pointwise::gelu_tanh:
      return math_loop(GeluTanh{}, out, x, n), true;
#define PEAL_CASE(name) \
  case Pointwise::name: \
    return math_loop(Of<Pointwise::name>{s, t}, out, x, n), true;
      PEAL_VECTOR_FUNCTIONS(PEAL_CASE)
#undef PEAL_CASE
    default:
      return false;
  }
}

template <class F>
void slope_loop(F f, float* dx, const float* dy, const float* x, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * f.slope(x[i]);
}

bool math_backward(Pointwise op, float* dx, const float* dy, const float* x, float s, float t,
                   std::int64_t n) {
  switch (op) {
    case Pointwise::gelu:
      return slope_loop(Gelu{}, dx, dy, x, n), true;
    case Pointwise::gelu_tanh:
      return slope_loop(GeluTanh{}, dx, dy, x, n), true;
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

// Sums of 1024 in T's lanes, those in double.
double sum_of_exp(const float* x, float shift, std::int64_t n) {
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += 1024) {
    const std::int64_t end = n - begin < 1024 ? n : begin + 1024;
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (std::int64_t i = begin; i < end; ++i) part += exponential(x[i] - shift);
    total += static_cast<double>(part);
  }
  return total;
}

void exp_scaled(float* out, const float* x, float shift, float scale, float less, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = scale * exponential(x[i] - shift) - less;
}

// The sum as above.
double exp_shifted(float* out, const float* x, float shift, std::int64_t n) {
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += 1024) {
    const std::int64_t end = n - begin < 1024 ? n : begin + 1024;
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (std::int64_t i = begin; i < end; ++i) {
      out[i] = exponential(x[i] - shift);
      part += out[i];
    }
    total += static_cast<double>(part);
  }
  return total;
}

template <std::size_t... I>
PEAL_ELEMENT Vector<std::int32_t> count_up(std::index_sequence<I...>) {
  return Vector<std::int32_t>{I...};
}

// Several rows at once, so that one's sums do not wait for another's. x is overwritten.
template <int rows>
void softmax_rows(float* out, float* x, const SoftmaxRows& o, std::int64_t first) {
  constexpr int wide = lanes<float>;
  using Floats = Vector<float>;
  using Ints = Vector<std::int32_t>;
  const Floats nothing = Floats{} - __builtin_inff();
  const Ints upwards = count_up(Lanes<float>{});
  Ints count[rows];
  Floats most[rows], part[rows];
  std::int64_t end = 0;
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    const std::int64_t seen = o.causal ? o.count + first + r : o.count;
    end = whole_vectors<float>(seen < o.n ? seen : o.n, o.row_x);
    count[r] = Ints{} + static_cast<std::int32_t>(seen < o.n ? seen : o.n);
    most[r] = nothing;
    part[r] = Floats{};
  }
  for (std::int64_t i = 0; i < end; i += wide) {
    const Ints place = upwards + static_cast<std::int32_t>(i);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      Floats value;
      load(value, x + r * o.row_x + i);
      value = place < count[r] ? value : nothing;
      most[r] = value > most[r] ? value : most[r];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) most[r] = Floats{} + largest_lane<float>(most[r]) * o.scale;
  for (std::int64_t i = 0; i < end; i += wide) {
    const Ints place = upwards + static_cast<std::int32_t>(i);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      Floats value;
      load(value, x + r * o.row_x + i);
      value = place < count[r] ? value : nothing;
      value = exponential_of<Floats, Ints>(value * o.scale - most[r]);
      store(x + r * o.row_x + i, value);
      part[r] += value;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    const float total = sum_of_lanes<float>(part[r]);
    if (o.total != nullptr) {
      o.largest[first + r] = most[r][0];
      o.total[first + r] = total;
    }
    part[r] = Floats{} + 1 / total;
  }
  const std::int64_t whole = end < o.n ? end : o.n / wide * wide;
  for (std::int64_t i = 0; i < whole; i += wide) {
    const Ints place = upwards + static_cast<std::int32_t>(i);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      Floats value;
      load(value, x + r * o.row_x + i);
      value *= part[r];
      store(out + r * o.row_out + i, place < count[r] ? value : Floats{});
    }
  }
  for (int r = 0; r < rows; ++r) {
    float* to = out + r * o.row_out;
    for (std::int64_t i = whole; i < end && i < o.n; ++i) {
      to[i] = i < count[r][0] ? x[r * o.row_x + i] * part[r][0] : 0.0f;
    }
    for (std::int64_t i = end; i < o.n; ++i) to[i] = 0.0f;
  }
}

void softmax_scaled(float* out, float* x, const SoftmaxRows& o) {
  constexpr int together = 4;
  std::int64_t i = 0;
  for (; o.rows - i >= together; i += together) {
    softmax_rows<together>(out + i * o.row_out, x + i * o.row_x, o, i);
  }
  for (; i < o.rows; ++i) softmax_rows<1>(out + i * o.row_out, x + i * o.row_x, o, i);
}

void exp_part(float* x, float scale, float shift, std::int64_t count, std::int64_t n) {
  constexpr int wide = lanes<float>;
  using Floats = Vector<float>;
  using Ints = Vector<std::int32_t>;
  const Ints upwards = count_up(Lanes<float>{});
  const Ints seen = Ints{} + static_cast<std::int32_t>(count);
  std::int64_t i = 0;
  for (; i < count; i += wide) {
    Floats value;
    load(value, x + i);
    value = exponential_of<Floats, Ints>(value * scale - shift);
    store(x + i, upwards + static_cast<std::int32_t>(i) < seen ? value : Floats{});
  }
  for (; i < n; ++i) x[i] = 0.0f;
}

constexpr MathLoops math_loops_here = {.math = math,
                                       .math_backward = math_backward,
                                       .exp_shifted = exp_shifted,
                                       .sum_of_exp = sum_of_exp,
                                       .exp_scaled = exp_scaled,
                                       .softmax_scaled = softmax_scaled,
                                       .exp_part = exp_part};

}  // namespace

const MathLoops& all_math_loops() { return math_loops_here; }

}  // namespace peal::cpu::PEAL_LEVEL
