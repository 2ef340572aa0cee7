// SPDX-License-Identifier: Apache-2.0
// The loops of columns.h and planes.h, in the namespace PEAL_LEVEL. This file is compiled with
// several instruction sets, so nothing in it may have a linker symbol that another file shares (a
// test looks at the symbols).
#include <peal/autograd/kernels/cpu/columns.h>
#include <peal/autograd/kernels/cpu/planes_body.h>

namespace peal::cpu::PEAL_LEVEL {
namespace {

constexpr std::int64_t rows_of_block = 64;

// f<width>(first column) over columns in pieces whose width the compiler knows: of a block, then of
// smaller powers of two.
template <std::int64_t width = column_block, class F>
PEAL_ELEMENT void each_piece(std::int64_t first, std::int64_t end, const F& f) {
  for (; end - first >= width; first += width) f.template operator()<width>(first);
  if constexpr (width > 1) each_piece<width / 2>(first, end, f);
}

// Of each column the sum of term(element, k), which f32 or f64 holds for a block of rows.
template <std::int64_t width, class T, class Term>
void total_of(double* total, const T* x, const Columns& columns, const Term& term) {
  for (std::int64_t k = 0; k < width; ++k) total[k] = 0;
  using Real = functor::computed<T>;
  for (std::int64_t row = 0; row < columns.rows;) {
    const std::int64_t left = columns.rows - row;
    const std::int64_t end = row + (left < rows_of_block ? left : rows_of_block);
    Real part[width] = {};
    for (; row < end; ++row, x += columns.stride) {
#pragma omp simd
      for (std::int64_t k = 0; k < width; ++k) part[k] += term(Real(x[k]), k);
    }
    for (std::int64_t k = 0; k < width; ++k) total[k] += static_cast<double>(part[k]);
  }
}

template <class T>
void sums(double* total, const T* x, const Columns& columns) {
  each_piece(0, columns.width, [&]<std::int64_t width>(std::int64_t at) {
    total_of<width>(total + at, x + at, columns, [](auto value, std::int64_t) { return value; });
  });
}

template <class T>
void squares(double* total, const T* x, const T* mean, const Columns& columns) {
  each_piece(0, columns.width, [&]<std::int64_t width>(std::int64_t at) {
    const T* centre = mean + at;
    total_of<width>(total + at, x + at, columns, [centre](T value, std::int64_t k) {
      return (value - centre[k]) * (value - centre[k]);
    });
  });
}

template <std::int64_t width, class T>
void moments_of_columns(double* plain, double* centred, const T* dy, const T* x, const T* mean,
                        const Columns& columns) {
  for (std::int64_t k = 0; k < width; ++k) plain[k] = centred[k] = 0;
  for (std::int64_t row = 0; row < columns.rows;) {
    const std::int64_t left = columns.rows - row;
    const std::int64_t end = row + (left < rows_of_block ? left : rows_of_block);
    T first[width] = {}, second[width] = {};
    for (; row < end; ++row, x += columns.stride, dy += columns.stride) {
#pragma omp simd
      for (std::int64_t k = 0; k < width; ++k) {
        first[k] += dy[k];
        second[k] += dy[k] * (x[k] - mean[k]);
      }
    }
    for (std::int64_t k = 0; k < width; ++k) {
      plain[k] += static_cast<double>(first[k]);
      centred[k] += static_cast<double>(second[k]);
    }
  }
}
template <class T>
void moments(double* plain, double* centred, const T* dy, const T* x, const T* mean,
             const Columns& columns) {
  each_piece(0, columns.width, [&]<std::int64_t width>(std::int64_t at) {
    moments_of_columns<width>(plain + at, centred + at, dy + at, x + at, mean + at, columns);
  });
}

template <class T>
void scale_shift(T* y, const T* x, const T* scale, const T* shift, const Columns& columns) {
  for (std::int64_t row = 0; row < columns.rows; ++row) {
#pragma omp simd
    for (std::int64_t k = 0; k < columns.width; ++k) y[k] = x[k] * scale[k] + shift[k];
    x += columns.stride;
    y += columns.stride;
  }
}

template <class T>
void combine(T* out, const T* dy, const T* x, const T* p, const T* q, const T* r,
             const Columns& columns) {
  for (std::int64_t row = 0; row < columns.rows; ++row) {
#pragma omp simd
    for (std::int64_t k = 0; k < columns.width; ++k) out[k] = p[k] * dy[k] + (q[k] * x[k] + r[k]);
    out += columns.stride;
    dy += columns.stride;
    x += columns.stride;
  }
}

template <class T>
constexpr ColumnLoops<T> column_loops_here = {.sums = sums<T>,
                                              .squares = squares<T>,
                                              .moments = moments<T>,
                                              .scale_shift = scale_shift<T>,
                                              .combine = combine<T>};

}  // namespace

const ColumnLoops<float>& column_loops_f32() { return column_loops_here<float>; }
const ColumnLoops<double>& column_loops_f64() { return column_loops_here<double>; }
void column_sums_bf16(double* total, const BFloat16* x, const Columns& columns) {
  sums(total, x, columns);
}
const PlaneLoops<float>& plane_loops_f32() { return plane_loops_here<float>; }
const PlaneLoops<double>& plane_loops_f64() { return plane_loops_here<double>; }
const PlaneLoops<BFloat16>& plane_loops_bf16() { return plane_loops_here<BFloat16>; }

}  // namespace peal::cpu::PEAL_LEVEL
