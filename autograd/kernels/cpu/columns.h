// SPDX-License-Identifier: Apache-2.0
// Columns of a row-major matrix: their sums, and maps that are each column's own, several columns
// at once, since one alone lies a row's length apart. What normalisation by channel of [N, C] is
// made of. A column's sum goes down its rows, so it is the same whichever columns come along.
// Compiled for each vector level. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/half.h>

#include <cstdint>

namespace peal::cpu {

// Sums are made of so many columns at once. Over as many rows they are in T, over such blocks in
// double.
inline constexpr std::int64_t column_block = 64;

// `width` columns, from where a pointer is, of rows that lie `stride` elements apart.
struct Columns {
  std::int64_t rows, stride, width;
};

// For float and double. Results [width] overlap nothing.
template <class T>
struct ColumnLoops {
  void (*sums)(double* total, const T* x, const Columns& columns);
  // of (x - mean)^2
  void (*squares)(double* total, const T* x, const T* mean, const Columns& columns);
  // of dy, and of dy (x - mean)
  void (*moments)(double* plain, double* centred, const T* dy, const T* x, const T* mean,
                  const Columns& columns);
  // y = x scale + shift
  void (*scale_shift)(T* y, const T* x, const T* scale, const T* shift, const Columns& columns);
  // out = p dy + (q x + r); out may be dy
  void (*combine)(T* out, const T* dy, const T* x, const T* p, const T* q, const T* r,
                  const Columns& columns);
};

// Of the current level.
template <class T>
const ColumnLoops<T>& column_loops();

// The sums alone, of bf16: widened in registers, over as many rows in f32.
void sum_columns(double* total, const BFloat16* x, const Columns& columns);

}  // namespace peal::cpu
