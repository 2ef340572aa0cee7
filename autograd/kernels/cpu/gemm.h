// SPDX-License-Identifier: Apache-2.0
// gemm: out [m, n] = a b, or out += a b, for row-major a [m, k] and b [k, n], each stored
// transposed where its flag says so. f32 in panels (panels.h) or through oneDNN, f64 through Eigen,
// integers by plain loops. Uses the calling thread's OpenMP threads. REQUIRES: m, n, k > 0, no
// overlap. Thread safety: as of the arrays.
#pragma once

#include <cstdint>

namespace peal::cpu {

struct Product {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  // From one row as it is stored to the next; 0: the rows are dense.
  std::int64_t row_a = 0, row_b = 0, row_out = 0;

  std::int64_t step_a() const { return row_a != 0 ? row_a : transpose_a ? m : k; }
  std::int64_t step_b() const { return row_b != 0 ? row_b : transpose_b ? k : n; }
  std::int64_t step_out() const { return row_out != 0 ? row_out : n; }
};

template <class T>
void gemm(T* out, const T* a, const T* b, const Product& o, bool add);

}  // namespace peal::cpu
