// SPDX-License-Identifier: Apache-2.0
// Softmax: sums of exponentials, and rows of scores that become shares, in f32. Part of
// loops_body.h, and under its rule about symbols.
#pragma once

#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/loops_math.h>
#include <peal/autograd/kernels/cpu/loops_vector.h>

#include <cstdint>
#include <utility>

namespace peal::cpu::PEAL_LEVEL {
namespace {

template <std::size_t... I>
PEAL_ELEMENT Vector<std::int32_t> count_up(std::index_sequence<I...>) {
  return Vector<std::int32_t>{I...};
}

// Sums of 1024 in T's lanes, those in double.
double sum_of_exp(const float* x, float shift, std::int64_t n) {
  constexpr std::int64_t wide = lanes<float>, block = 1024;
  using Floats = Vector<float>;
  using Ints = Vector<std::int32_t>;
  const auto power = [shift](const float* from) __attribute__((always_inline)) {
    Floats value;
    load(value, from);
    return falling_exponential_of<Floats, Ints>(value - shift);
  };
  double total = 0;
  if (n < wide) {
    float part = 0;
    for (std::int64_t i = 0; i < n; ++i) part += falling_exponential(x[i] - shift);
    return static_cast<double>(part);
  }
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t end = n - i < block ? n : i + block;
    Floats part = {}, other = {};
    for (; end - i >= 2 * wide; i += 2 * wide) {
      part += power(x + i);
      other += power(x + i + wide);
    }
    if (end - i >= wide) {
      part += power(x + i);
      i += wide;
    }
    if (i < end) {  // the last vector, without what was summed before
      const auto before = static_cast<std::int32_t>(i - (n - wide));
      const Floats last = power(x + n - wide);
      other += count_up(Lanes<float>{}) < before ? Floats{} : last;
      i = end;
    }
    total += static_cast<double>(sum_of_lanes<float>(part + other));
  }
  return total;
}

// out may be x: the last vector, which may overlap the one before, is read first.
void exp_scaled(float* out, const float* x, float shift, float scale, float less, std::int64_t n) {
  constexpr std::int64_t wide = lanes<float>;
  using Floats = Vector<float>;
  using Ints = Vector<std::int32_t>;
  if (n < wide) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = scale * falling_exponential(x[i] - shift) - less;
    return;
  }
  Floats last, value;
  load(last, x + n - wide);
  for (std::int64_t i = 0; i < n - wide; i += wide) {
    load(value, x + i);
    store(out + i, scale * falling_exponential_of<Floats, Ints>(value - shift) - less);
  }
  store(out + n - wide, scale * falling_exponential_of<Floats, Ints>(last - shift) - less);
}

// The sum as above.
double exp_shifted(float* out, const float* x, float shift, std::int64_t n) {
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += 1024) {
    const std::int64_t end = n - begin < 1024 ? n : begin + 1024;
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (std::int64_t i = begin; i < end; ++i) {
      out[i] = falling_exponential(x[i] - shift);
      part += out[i];
    }
    total += static_cast<double>(part);
  }
  return total;
}

// Several rows at once, so that one's sums do not wait for another's. x is overwritten; where out
// is null, with the exponentials.
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
  for (int r = 0; r < rows; ++r) most[r] = largest_lane<float>(most[r]);
  for (std::int64_t i = 0; i < end; i += wide) {
    const Ints place = upwards + static_cast<std::int32_t>(i);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      Floats value;
      load(value, x + r * o.row_x + i);
      value = place < count[r] ? value : nothing;
      // Scaled last: of large scores, whose products round by more than an exponential bears, one
      // may be rounded and the other, in a fused multiply-add, not.
      value = falling_exponential_of<Floats, Ints>((value - most[r]) * o.scale);
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

void exp_part(float* x, float scale, float shift, float factor, std::int64_t count,
              std::int64_t n) {
  constexpr int wide = lanes<float>;
  using Floats = Vector<float>;
  using Ints = Vector<std::int32_t>;
  const Ints upwards = count_up(Lanes<float>{});
  const Ints seen = Ints{} + static_cast<std::int32_t>(count);
  std::int64_t i = 0;
  for (; i < count; i += wide) {
    Floats value;
    load(value, x + i);
    value = factor * falling_exponential_of<Floats, Ints>((value - shift) * scale);
    store(x + i, upwards + static_cast<std::int32_t>(i) < seen ? value : Floats{});
  }
  for (; i < n; ++i) x[i] = 0.0f;
}

constexpr MathLoops math_loops_here = {.exp_shifted = exp_shifted,
                                       .sum_of_exp = sum_of_exp,
                                       .exp_scaled = exp_scaled,
                                       .softmax_scaled = softmax_scaled,
                                       .exp_part = exp_part};

}  // namespace

const MathLoops& all_math_loops() { return math_loops_here; }

}  // namespace peal::cpu::PEAL_LEVEL
