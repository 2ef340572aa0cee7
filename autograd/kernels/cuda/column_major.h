// SPDX-License-Identifier: Apache-2.0
// The layout arithmetic between peal's row-major matrices and cuBLAS's column-major ones. A
// row-major matrix read column by column is its own transpose, so out = a b becomes
// out^T = b^T a^T: the operands change places, and each keeps its flag. Thread safety: pure
// functions.
#pragma once

#include <cstdint>

namespace peal::cuda {

// A batch of products out [m, n] = a [m, k] b [k, n] of row-major matrices, each operand stored
// transposed where its flag says so. Rows, as they are stored, are row_x elements apart, and the
// matrices of a batch step_x elements (0: all products share it).
struct RowProduct {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  std::int64_t row_a, row_b, row_out;
  std::int64_t batch = 1, step_a = 0, step_b = 0, step_out = 0;
};

// With rows, and the matrices of a batch, side by side.
inline RowProduct dense_product(std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a,
                                bool transpose_b, std::int64_t batch = 1) {
  return {m, n,     k,     transpose_a, transpose_b, transpose_a ? m : k, transpose_b ? k : n,
          n, batch, m * k, k * n,       m * n};
}

// A column-major matrix as it is stored: columns are `leading` elements apart.
struct ColumnMatrix {
  std::int64_t rows, columns, leading, step;
  bool transposed;  // the product takes its transpose
};

struct ColumnProduct {
  ColumnMatrix first, second, out;  // out = first second: first is b, second is a
  std::int64_t batch;
};

inline ColumnProduct column_major(const RowProduct& o) {
  const auto stored = [](std::int64_t rows, std::int64_t columns, std::int64_t row,
                         std::int64_t step, bool transposed) {
    return ColumnMatrix{transposed ? rows : columns, transposed ? columns : rows, row, step,
                        transposed};
  };
  return {stored(o.k, o.n, o.row_b, o.step_b, o.transpose_b),
          stored(o.m, o.k, o.row_a, o.step_a, o.transpose_a),
          stored(o.m, o.n, o.row_out, o.step_out, false), o.batch};
}

// An operand of attention: [B, L, heads width] or [B, heads, T, S] as B x heads matrices.
struct HeadMatrices {
  std::int64_t row, per_batch, per_head;
};

// The B x heads products of attention as batches with one step: one of the two counts is the batch
// and the other, the smaller, the number of launches.
struct HeadLaunches {
  std::int64_t launches, batch;
  bool batches_heads;
  std::int64_t offset(const HeadMatrices& x, std::int64_t launch) const {
    return launch * (batches_heads ? x.per_batch : x.per_head);
  }
  std::int64_t step(const HeadMatrices& x) const {
    return batches_heads ? x.per_head : x.per_batch;
  }
};

inline HeadLaunches head_launches(std::int64_t batch, std::int64_t heads) {
  if (heads >= batch) return {batch, heads, true};
  return {heads, batch, false};
}

}  // namespace peal::cuda
