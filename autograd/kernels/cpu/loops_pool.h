// SPDX-License-Identifier: Apache-2.0
// Max pooling of one plane. Part of loops_body.h, and under its rule about symbols.
#pragma once

#include <peal/autograd/kernels/cpu/loops_vector.h>
#include <peal/autograd/kernels/table.h>

namespace peal::cpu::PEAL_LEVEL {
namespace {

// A NaN wins, as in PyTorch.
template <class T>
PEAL_ELEMENT void window_max(const Pool2dGeometry& o, const T* window, T& largest,
                             std::uint8_t& at) {
  largest = window[0];
  at = 0;
  for (std::int64_t p = 0; p < o.kernel[0]; ++p) {
    for (std::int64_t q = 0; q < o.kernel[1]; ++q) {
      const T value = window[p * o.in_width + q];
      if (value > largest || value != value) {
        largest = value;
        at = static_cast<std::uint8_t>(p * o.kernel[1] + q);
      }
    }
  }
}

bool halves(const Pool2dGeometry& o) {
  return o.kernel[0] == 2 && o.kernel[1] == 2 && o.stride[0] == 2 && o.stride[1] == 2;
}

// A vector of 2 x 2 windows: where = 2 (lower row) + 1 (right column).
template <class T>
PEAL_ELEMENT void max_of_halves(const T* line, const T* below, T* best, std::uint8_t* where) {
  using V = Vector<T>;
  V a, b, c, d;
  load(a, line);
  load(b, line + lanes<T>);
  load(c, below);
  load(d, below + lanes<T>);
  const V v0 = evens(a, b, Lanes<T>{}), v1 = odds(a, b, Lanes<T>{});
  const V v2 = evens(c, d, Lanes<T>{}), v3 = odds(c, d, Lanes<T>{});
  const auto right = (v1 > v0) | (v1 != v1), right_below = (v3 > v2) | (v3 != v3);  // -1 or 0
  const V top = right ? v1 : v0, bottom = right_below ? v3 : v2;
  const auto low = (bottom > top) | (bottom != bottom);
  store(best, low ? bottom : top);
  store(where, __builtin_convertvector(low ? 2 - right_below : -right, Bytes<T>));
}

template <class T>
void max_pool(const Pool2dGeometry& o, T* __restrict y, std::uint8_t* __restrict index,
              const T* __restrict x) {
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
      for (; j < o.out_width; j += lanes<T>) {
        const T *upper = line + 2 * j, *lower = upper + o.in_width;
        if (x_end - lower >= 2 * lanes<T> && y_end - (best + j) >= lanes<T>) {
          max_of_halves(upper, lower, best + j, where + j);
        } else {
          T up[2 * lanes<T>] = {}, low[2 * lanes<T>] = {}, largest[lanes<T>];
          std::uint8_t at[lanes<T>];
          const std::int64_t left = o.out_width - j < lanes<T> ? o.out_width - j : lanes<T>;
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
  using V = Vector<T>;
  V grad;
  Bytes<T> where_bytes;
  load(grad, g);
  load(where_bytes, at);
  const auto where = __builtin_convertvector(where_bytes, Vector<Integer<T>>);
  const V zero = {};
  const V left = where == first ? grad : zero, right = where == first + 1 ? grad : zero;
  store(line, zip_low(left, right, Lanes<T>{}));
  store(line + lanes<T>, zip_high(left, right, Lanes<T>{}));
}

template <class T>
void max_pool_backward(const Pool2dGeometry& o, T* __restrict dx, const T* __restrict dy,
                       const std::uint8_t* __restrict index) {
  const std::int64_t in = o.in_height * o.in_width, out = o.out_height * o.out_width;
  std::int64_t row = 0;
  if (halves(o) && o.in_width == 2 * o.out_width) {
    // Whole vectors, row by row: one may run over the end of a row, into what the next then writes.
    const std::int64_t width = (o.out_width + lanes<T> - 1) / lanes<T> * lanes<T>;
    for (; row < o.out_height; ++row) {
      const std::int64_t at = row * o.out_width;
      if ((2 * row + 1) * o.in_width + 2 * width > in || at + width > out) break;
      for (int half = 0; half < 2; ++half) {
        T* line = dx + (2 * row + half) * o.in_width;
        for (std::int64_t j = 0; j < o.out_width; j += lanes<T>) {
          spread_half(line + 2 * j, dy + at + j, index + at + j, 2 * half);
        }
      }
    }
  }
  for (std::int64_t i = 2 * row * o.in_width; i < in; ++i) dx[i] = T(0);
  for (; row < o.out_height; ++row) {
    for (std::int64_t j = 0; j < o.out_width; ++j) {
      const std::int64_t at = index[row * o.out_width + j];
      const std::int64_t p = row * o.stride[0] + at / o.kernel[1];
      const std::int64_t q = j * o.stride[1] + at % o.kernel[1];
      dx[p * o.in_width + q] += dy[row * o.out_width + j];
    }
  }
}

}  // namespace
}  // namespace peal::cpu::PEAL_LEVEL
