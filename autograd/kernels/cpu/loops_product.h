// SPDX-License-Identifier: Apache-2.0
// Products of small matrices, read where they lie: a tile of the result stays in registers while it
// is summed. Part of loops_body.h, and under its rule about symbols.
#pragma once

#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/cpu/loops_vector.h>

#include <cstdint>

namespace peal::cpu::PEAL_LEVEL {
namespace {

// A tile's sums, one vector of each operand and what a multiplication needs fill the registers: 32
// with AVX-512, 16 else.
constexpr int tile_rows = 6;
#if defined(__AVX512F__)
constexpr int tile_vectors = 4;
#else
constexpr int tile_vectors = 2;
#endif

// Of the last vector, the first `left` elements.
template <class T>
PEAL_ELEMENT void store_part(T* to, const Vector<T>& value, std::int64_t left) {
  T all[lanes<T>];
  store(all, value);
  for (std::int64_t l = 0; l < left; ++l) to[l] = all[l];
}
template <class T>
PEAL_ELEMENT void load_part(Vector<T>& value, const T* from, std::int64_t left) {
  T all[lanes<T>] = {};
  for (std::int64_t l = 0; l < left; ++l) all[l] = from[l];
  load(value, all);
}

// `columns` of them are stored; more than all vectors but the last hold.
template <class T, int rows, int vectors>
void product_tile(T* out, const T* a, const T* b, const T* onto, const SmallProduct& o,
                  std::int64_t columns) {
  Vector<T> sums[rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j) sums[i][j] = Vector<T>{};
  }
  const auto add_step = [&] {
    Vector<T> right[vectors];
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j) load(right[j], b + j * lanes<T>);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const Vector<T> left = a[i * o.row_a] - Vector<T>{};  // in all lanes
#pragma GCC unroll 8
      for (int j = 0; j < vectors; ++j) sums[i][j] += left * right[j];
    }
    a += o.step_a;
    b += o.row_b;
  };
  const T* ahead = o.ahead != nullptr ? static_cast<const T*>(o.ahead) : b;
  constexpr std::int64_t steps = SmallProduct::steps_a_line;
  std::int64_t p = 0;
  for (; o.k - p >= steps; p += steps, ahead += o.ahead_step) {
    __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < steps; ++i) add_step();
  }
  for (; p < o.k; ++p) add_step();
  const std::int64_t last = columns - (vectors - 1) * lanes<T>;
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < vectors; ++j) {
      T* to = out + i * o.row_out + j * lanes<T>;
      Vector<T> before = {};
      if (j < vectors - 1 || last == lanes<T>) {
        if (onto != nullptr) load(before, onto + i * o.row_onto + j * lanes<T>);
        store(to, sums[i][j] + before);
      } else {
        if (onto != nullptr) load_part(before, onto + i * o.row_onto + j * lanes<T>, last);
        store_part(to, sums[i][j] + before, last);
      }
    }
  }
}

template <class T, int rows>
PEAL_ELEMENT void product_rows(T* out, const T* a, const T* b, const T* onto,
                               const SmallProduct& o) {
  std::int64_t j = 0;
  const auto tile = [&]<int vectors>(std::int64_t columns) {
    product_tile<T, rows, vectors>(out + j, a, b + j, onto != nullptr ? onto + j : nullptr, o,
                                   columns);
  };
  for (; o.n - j >= tile_vectors * lanes<T>; j += tile_vectors * lanes<T>) {
    tile.template operator()<tile_vectors>(tile_vectors * lanes<T>);
  }
  const std::int64_t columns = o.n - j;
  if (columns <= 0) return;
  switch ((columns - 1) / lanes<T>) {
    case 0:
      return tile.template operator()<1>(columns);
    case 1:
      return tile.template operator()<2>(columns);
#if defined(__AVX512F__)
    case 2:
      return tile.template operator()<3>(columns);
    case 3:
      return tile.template operator()<4>(columns);
#endif
  }
}

template <class T>
void multiply_small(T* out, const T* a, const T* b, const T* onto, const SmallProduct& o) {
  const auto row = [&](std::int64_t i) {
    return onto != nullptr ? onto + i * o.row_onto : nullptr;
  };
  std::int64_t i = 0;
  for (; o.m - i >= tile_rows; i += tile_rows) {
    product_rows<T, tile_rows>(out + i * o.row_out, a + i * o.row_a, b, row(i), o);
  }
  // What is left, of fewer rows than a tile, by tiles of 4, 2 and 1.
  const auto rest = [&]<int rows>() {
    if (o.m - i < rows) return;
    product_rows<T, rows>(out + i * o.row_out, a + i * o.row_a, b, row(i), o);
    i += rows;
  };
  rest.template operator()<4>();
  rest.template operator()<2>();
  rest.template operator()<1>();
}

// Rows of a meet rows of b, of which the last elements are fewer than a vector.
template <class T, int rows, int columns>
void dot_tile(T* out, const T* a, const T* b, const T* onto, const SmallProduct& o) {
  Vector<T> sums[rows][columns];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < columns; ++j) sums[i][j] = Vector<T>{};
  }
  const auto add_step = [&](const auto& read) __attribute__((always_inline)) {
    Vector<T> right[columns], left;
#pragma GCC unroll 8
    for (int j = 0; j < columns; ++j) read(right[j], b + j * o.row_b);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      read(left, a + i * o.row_a);
#pragma GCC unroll 8
      for (int j = 0; j < columns; ++j) sums[i][j] += left * right[j];
    }
  };
  std::int64_t p = 0;
  for (; o.k - p >= lanes<T>; p += lanes<T>) {
    add_step([&](Vector<T> & value, const T* from)
                 __attribute__((always_inline)) { load(value, from + p); });
  }
  if (p < o.k) {
    add_step([&](Vector<T> & value, const T* from)
                 __attribute__((always_inline)) { load_part(value, from + p, o.k - p); });
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < columns; ++j) {
      const T before = onto != nullptr ? onto[i * o.row_onto + j] : T(0);
      out[i * o.row_out + j] = sum_of_lanes<T>(sums[i][j]) + before;
    }
  }
}

template <class T, int columns>
void dot_rows(T* out, const T* a, const T* b, const T* onto, const SmallProduct& o) {
  constexpr int together = 8 / columns;
  const auto row = [&](std::int64_t i) {
    return onto != nullptr ? onto + i * o.row_onto : nullptr;
  };
  std::int64_t i = 0;
  for (; o.m - i >= together; i += together) {
    dot_tile<T, together, columns>(out + i * o.row_out, a + i * o.row_a, b, row(i), o);
  }
  for (; i < o.m; ++i) {
    dot_tile<T, 1, columns>(out + i * o.row_out, a + i * o.row_a, b, row(i), o);
  }
}

template <class T>
void multiply_dots(T* out, const T* a, const T* b, const T* onto, const SmallProduct& o) {
  std::int64_t j = 0;
  const auto columns = [&]<int count>() {
    for (; o.n - j >= count; j += count) {
      dot_rows<T, count>(out + j, a, b + j * o.row_b, onto != nullptr ? onto + j : nullptr, o);
    }
  };
  columns.template operator()<4>();
  columns.template operator()<2>();
  columns.template operator()<1>();
}

// A square of as many vectors as a vector has lanes: each round is a perfect shuffle of all.
template <class T>
PEAL_ELEMENT void transpose_square(T* out, const T* x, std::int64_t row_x, std::int64_t row_out) {
  constexpr int n = lanes<T>;
  Vector<T> now[n], next[n];
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) load(now[i], x + i * row_x);
#pragma GCC unroll 4
  for (int round = 1; round < n; round *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < n / 2; ++i) {
      next[2 * i] = zip_low(now[i], now[i + n / 2], Lanes<T>{});
      next[2 * i + 1] = zip_high(now[i], now[i + n / 2], Lanes<T>{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) now[i] = next[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) store(out + i * row_out, now[i]);
}

template <class T>
void transpose(T* out, const T* x, std::int64_t rows, std::int64_t columns, std::int64_t row_x,
               std::int64_t row_out) {
  constexpr std::int64_t n = lanes<T>;
  std::int64_t i = 0;
  for (; rows - i >= n; i += n) {
    std::int64_t j = 0;
    for (; columns - j >= n; j += n) {
      transpose_square(out + j * row_out + i, x + i * row_x + j, row_x, row_out);
    }
    for (; j < columns; ++j) {
      for (std::int64_t l = i; l < i + n; ++l) out[j * row_out + l] = x[l * row_x + j];
    }
  }
  for (; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) out[j * row_out + i] = x[i * row_x + j];
  }
}

template <class T>
PEAL_ELEMENT void softmax_backward_from(T* dx, const T* y, T total, T scale, std::int64_t count,
                                        std::int64_t n) {
  const std::int64_t end = whole_vectors<T>(count, n);
#pragma omp simd
  for (std::int64_t i = 0; i < end; ++i) {
    dx[i] = i < count ? y[i] * (dx[i] - total) * scale : T(0);
  }
  for (std::int64_t i = end; i < n; ++i) dx[i] = T(0);
}

template <class T>
void softmax_backward_scaled(T* dx, const T* y, double scale, std::int64_t count, std::int64_t n) {
  const std::int64_t end = whole_vectors<T>(count, n);
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < end; ++i) total += i < count ? y[i] * dx[i] : T(0);
  softmax_backward_from(dx, y, total, static_cast<T>(scale), count, n);
}

template <class T>
void softmax_backward_part(T* dx, const T* y, double total, double scale, std::int64_t count,
                           std::int64_t n) {
  softmax_backward_from(dx, y, static_cast<T>(total), static_cast<T>(scale), count, n);
}

template <class T>
bool change_scores(T* x, double factor, const T* added, const bool* shown, std::int64_t n) {
  const T scale = static_cast<T>(factor), hidden = -static_cast<T>(__builtin_inff());
  const Vector<T> none = Vector<T>{} + hidden;
  Vector<Integer<T>> left = {};
  std::int64_t i = 0;
  for (; n - i >= lanes<T>; i += lanes<T>) {
    Vector<T> value, more = {};
    load(value, x + i);
    value *= scale;
    if (added != nullptr) {
      load(more, added + i);
      value += more;
    }
    if (shown != nullptr) {
      Bytes<T> flags;
      load(flags, shown + i);
      value = integers_of<T>(flags) != 0 ? value : none;
    }
    left |= value != none;
    store(x + i, value);
  }
  bool any = false;
  for (int l = 0; l < lanes<T>; ++l) any = any || left[l] != 0;
  for (; i < n; ++i) {
    x[i] = x[i] * scale + (added != nullptr ? added[i] : T(0));
    if (shown != nullptr && !shown[i]) x[i] = hidden;
    any = any || x[i] != hidden;
  }
  return any;
}

template <class T>
constexpr ProductLoops<T> product_loops_here = {
    .lanes = lanes<T>,
    .rows = tile_rows,
    .columns = tile_vectors* lanes<T>,
    .multiply = multiply_small<T>,
    .multiply_dots = multiply_dots<T>,
    .transpose = transpose<T>,
    .softmax_backward_scaled = softmax_backward_scaled<T>,
    .softmax_backward_part = softmax_backward_part<T>,
    .change_scores = change_scores<T>};

}  // namespace
}  // namespace peal::cpu::PEAL_LEVEL
