// SPDX-License-Identifier: Apache-2.0
// Max pooling of one plane. bf16 is compared in f32: of a word the lower half is a left column and
// the upper a right one, so that widening parts them. Part of loops_body.h, and under its rule
// about symbols.
#pragma once

#include <peal/autograd/kernels/cpu/loops_vector.h>
#include <peal/autograd/kernels/table.h>

#include <type_traits>

namespace peal::cpu::PEAL_LEVEL {
namespace {

// A NaN wins, as in PyTorch.
template <class T>
PEAL_ELEMENT void window_max(const Pool2dGeometry& o, const T* window, T& largest,
                             std::uint8_t& at) {
  using Real = functor::computed<T>;
  largest = window[0];
  at = 0;
  for (std::int64_t p = 0; p < o.kernel[0]; ++p) {
    for (std::int64_t q = 0; q < o.kernel[1]; ++q) {
      const Real value = window[p * o.in_width + q];
      if (value > Real(largest) || value != value) {
        largest = T(value);
        at = static_cast<std::uint8_t>(p * o.kernel[1] + q);
      }
    }
  }
}

bool halves(const Pool2dGeometry& o) {
  return o.kernel[0] == 2 && o.kernel[1] == 2 && o.stride[0] == 2 && o.stride[1] == 2;
}

// Windows that are looked at together: a vector of what is compared.
template <class T>
constexpr int together = lanes<functor::computed<T>>;
template <class T>
using Compared = Vector<functor::computed<T>>;
using Words = Vector<std::uint32_t>;
using HalfWords = VectorOf<float>::shorts;

template <class T>
struct Columns {
  Compared<T> left, right;
};
template <class T>
PEAL_ELEMENT Columns<T> columns_of(const T* line) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    Words both;
    load(both, line);
    return {(Compared<T>)(both << 16), (Compared<T>)(both & 0xffff0000u)};
  } else {
    Compared<T> a, b;
    load(a, line);
    load(b, line + lanes<T>);
    return {evens(a, b, Lanes<T>{}), odds(a, b, Lanes<T>{})};
  }
}

// A vector of 2 x 2 windows: where = 2 (lower row) + 1 (right column).
template <class T>
PEAL_ELEMENT void max_of_halves(const T* line, const T* below, T* best, std::uint8_t* where) {
  using Real = functor::computed<T>;
  const auto [v0, v1] = columns_of(line);
  const auto [v2, v3] = columns_of(below);
  const auto right = (v1 > v0) | (v1 != v1), right_below = (v3 > v2) | (v3 != v3);  // -1 or 0
  const Compared<T> top = right ? v1 : v0, bottom = right_below ? v3 : v2;
  const auto low = (bottom > top) | (bottom != bottom);
  const Compared<T> largest = low ? bottom : top;
  if constexpr (std::is_same_v<T, BFloat16>) {
    store(best, __builtin_convertvector((Words)largest >> 16, HalfWords));
  } else {
    store(best, largest);
  }
  store(where, bytes_of<Real>(low ? 2 - right_below : -right));
}

template <class T>
void max_pool(const Pool2dGeometry& o, T* __restrict y, std::uint8_t* __restrict index,
              const T* __restrict x) {
  constexpr int step = together<T>;
  const T* x_end = x + o.in_height * o.in_width;
  const T* y_end = y + o.out_height * o.out_width;
  for (std::int64_t row = 0; row < o.out_height; ++row) {
    const T* line = x + row * o.stride[0] * o.in_width;
    T* best = y + row * o.out_width;
    std::uint8_t* where = index + row * o.out_width;
    std::int64_t j = 0;
    if (halves(o)) {
      // A vector may run over the end of a row, into what the next row then writes; at the plane's
      // end it works on a copy.
      for (; j < o.out_width; j += step) {
        const T *upper = line + 2 * j, *lower = upper + o.in_width;
        if (x_end - lower >= 2 * step && y_end - (best + j) >= step) {
          max_of_halves(upper, lower, best + j, where + j);
        } else {
          T up[2 * step] = {}, low[2 * step] = {}, largest[step];
          std::uint8_t at[step];
          const std::int64_t left = o.out_width - j < step ? o.out_width - j : step;
          for (std::int64_t l = 0; l < 2 * left; ++l) up[l] = upper[l], low[l] = lower[l];
          max_of_halves(up, low, largest, at);
          for (std::int64_t l = 0; l < left; ++l) best[j + l] = largest[l], where[j + l] = at[l];
        }
      }
    }
    for (; j < o.out_width; ++j) window_max(o, line + j * o.stride[1], best[j], where[j]);
  }
}

// The gradients of a vector of 2 x 2 windows in one of their rows, whose places are first, first
// + 1.
template <class T>
PEAL_ELEMENT void spread_half(T* line, const T* g, const std::uint8_t* at, int first) {
  using Real = functor::computed<T>;
  Bytes<Real> where_bytes;
  load(where_bytes, at);
  const auto where = integers_of<Real>(where_bytes);
  if constexpr (std::is_same_v<T, BFloat16>) {
    HalfWords grad;
    load(grad, g);
    const Words bits = __builtin_convertvector(grad, Words), zero = {};
    store(line, (where == first ? bits : zero) | (where == first + 1 ? bits << 16 : zero));
  } else {
    Vector<T> grad;
    load(grad, g);
    const Vector<T> zero = {};
    const Vector<T> left = where == first ? grad : zero, right = where == first + 1 ? grad : zero;
    store(line, zip_low(left, right, Lanes<T>{}));
    store(line + lanes<T>, zip_high(left, right, Lanes<T>{}));
  }
}

template <class T>
void max_pool_backward(const Pool2dGeometry& o, T* __restrict dx, const T* __restrict dy,
                       const std::uint8_t* __restrict index) {
  const std::int64_t in = o.in_height * o.in_width, out = o.out_height * o.out_width;
  constexpr int step = together<T>;
  using Real = functor::computed<T>;
  std::int64_t row = 0;
  if (halves(o) && o.in_width == 2 * o.out_width) {
    // Whole vectors, row by row: one may run over the end of a row, into what the next then writes.
    const std::int64_t width = (o.out_width + step - 1) / step * step;
    for (; row < o.out_height; ++row) {
      const std::int64_t at = row * o.out_width;
      if ((2 * row + 1) * o.in_width + 2 * width > in || at + width > out) break;
      for (int half = 0; half < 2; ++half) {
        T* line = dx + (2 * row + half) * o.in_width;
        for (std::int64_t j = 0; j < o.out_width; j += step) {
          spread_half(line + 2 * j, dy + at + j, index + at + j, 2 * half);
        }
      }
    }
  }
  for (std::int64_t i = 2 * row * o.in_width; i < in; ++i) dx[i] = T{};
  for (; row < o.out_height; ++row) {
    for (std::int64_t j = 0; j < o.out_width; ++j) {
      const std::int64_t at = index[row * o.out_width + j];
      const std::int64_t p = row * o.stride[0] + at / o.kernel[1];
      const std::int64_t q = j * o.stride[1] + at % o.kernel[1];
      T& sum = dx[p * o.in_width + q];
      sum = T(Real(sum) + Real(dy[row * o.out_width + j]));
    }
  }
}

}  // namespace
}  // namespace peal::cpu::PEAL_LEVEL
