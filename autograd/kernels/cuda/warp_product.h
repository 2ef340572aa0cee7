// SPDX-License-Identifier: Apache-2.0
// Products of a warp's 16 rows with a tile in shared memory: on tensor cores for f16 and bf16, by
// FMA for f32 and f64. Both lay sums out alike, so what is between two products is written once:
// with g = lane / 4 and t = lane % 4, sum[n] of 16 x 8 holds
//   sum[n][0] (g, 8 n + 2t)   sum[n][1] (g, 8 n + 2t + 1)   sum[n][2], [3] the same of row g + 8.
//
// A tile is read without bank conflicts either way round: its rows are whole 128 bytes, and the 16
// bytes c of row r lie at c ^ (r % 8), so that eight rows' c lie in eight different groups of
// banks. A warp multiplies several blocks of 16 rows at once where it has registers for them, as
// each reads the tile: 16 rows alone need 2 bytes of shared memory for each multiplication of a
// tensor core, which is half of what those could do.
#pragma once

#include <peal/autograd/kernels/cuda/block.h>
#include <peal/autograd/kernels/cuda/tensor_core.h>
#include <peal/autograd/kernels/cuda/walk.h>
#include <peal/autograd/kernels/functors.h>

namespace peal::cuda {

// Rows `row` elements apart in global memory, of which `count` with `columns` exist. `aligned`:
// each begins on a boundary of 16 bytes, and columns are whole such.
template <class T>
struct Matrix {
  T* at;
  std::int64_t row;
  int count, columns;
  bool aligned;
  __device__ T element(int r, int c) const {
    return r < count && c < columns ? at[r * row + c] : T(0.0f);
  }
};

template <class T, int columns_, int rows_>
struct Tile {
  static constexpr int columns = columns_, rows = rows_;
  static constexpr int in_chunk = static_cast<int>(16 / sizeof(T)), chunks = columns / in_chunk;
  static_assert(chunks % 8 == 0 && rows % 8 == 0);
  T* at;  // on a boundary of 16 bytes

  __device__ T* chunk(int row, int c) const {
    return at + (row * chunks + (c ^ (row % 8))) * in_chunk;
  }

  // Rows `first` ... of x, 0 where there are none, by all `threads` of a block. They are there
  // after copies_arrive() and a barrier.
  template <int threads>
  __device__ void load(const Matrix<const T>& x, int first) const {
    static_assert(rows * chunks % threads == 0);
#pragma unroll
    for (int i = 0; i < rows * chunks / threads; ++i) {
      const int place = i * threads + static_cast<int>(threadIdx.x);
      const int row = place / chunks, c = place % chunks, from = first + row;
      T* to = chunk(row, c);
      if (x.aligned) {
        const bool there = from < x.count && c * in_chunk < x.columns;
        copy_later(to, there ? x.at + from * x.row + c * in_chunk : x.at, there ? 16 : 0);
      } else {
#pragma unroll 1
        for (int e = 0; e < in_chunk; ++e) to[e] = x.element(from, c * in_chunk + e);
      }
    }
  }
};

template <class T>
inline constexpr bool on_tensor_cores = sizeof(T) == 2;

// 16 rows as the left operand of products, in registers.
template <class T, int columns>
struct Rows {
  static constexpr bool tensor = on_tensor_cores<T>;
  using Element = std::conditional_t<tensor, std::uint32_t, T>;
  static constexpr int steps = tensor ? columns / 16 : columns / 4, each = tensor ? 4 : 2;
  Element at[steps][each];

  __device__ void load(const Matrix<const T>& x, int first) {
    const int g = first + static_cast<int>(threadIdx.x) % warp / 4,
              t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int s = 0; s < steps; ++s) {
#pragma unroll
      for (int e = 0; e < each; ++e) {
        const int row = g + e % 2 * 8;
        if constexpr (tensor) {
          at[s][e] = two(x, row, 16 * s + 2 * t + e / 2 * 8);
        } else {
          at[s][e] = x.element(row, 4 * s + t);
        }
      }
    }
  }

 private:
  __device__ static std::uint32_t two(const Matrix<const T>& x, int row, int column) {
    if (x.aligned && row < x.count && column < x.columns) {
      return *reinterpret_cast<const std::uint32_t*>(x.at + row * x.row + column);
    }
    return x.element(row, column).bits | static_cast<std::uint32_t>(x.element(row, column + 1).bits)
                                             << 16;
  }
};

// Sums of 16 x `columns` as the left operand of the next product, rounded to T.
template <class T, int columns>
struct Shares {
  static constexpr bool tensor = on_tensor_cores<T>;
  using C = functor::computed<T>;
  std::conditional_t<tensor, std::uint32_t, C> at[tensor ? columns / 16 : columns / 8][4];

  __device__ explicit Shares(const C (&sum)[columns / 8][4]) {
    if constexpr (tensor) {
#pragma unroll
      for (int k = 0; k < columns / 16; ++k) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const C* from = &sum[2 * k + e / 2][e % 2 * 2];
          at[k][e] = two_of<T>(from[0], from[1]);
        }
      }
    } else {
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) at[n][e] = sum[n][e];
      }
    }
  }
  Shares() = default;
};

// sum += a tile^T for each of `blocks` of 16 rows: a sum over the tile's columns.
template <class T, int columns, int rows, int blocks, class C>
__device__ __forceinline__ void add_over_columns(C (&sum)[blocks][rows / 8][4],
                                                 const Rows<T, columns> (&a)[blocks],
                                                 const Tile<T, columns, rows>& tile) {
  const int lane = static_cast<int>(threadIdx.x) % warp;
  if constexpr (on_tensor_cores<T>) {
    // Matrices: eight rows with 16 columns, and the next eight with these.
    const int row = lane % 8 + lane / 16 * 8, half = lane / 8 % 2;
#pragma unroll
    for (int k = 0; k < columns / 16; ++k) {
#pragma unroll
      for (int n = 0; n < rows / 8; n += 2) {
        std::uint32_t b[4];
        load_matrices<false>(b, tile.chunk(8 * n + row, 2 * k + half));
#pragma unroll
        for (int m = 0; m < blocks; ++m) {
          multiply_add<T>(sum[m][n], a[m].at[k], b[0], b[1]);
          multiply_add<T>(sum[m][n + 1], a[m].at[k], b[2], b[3]);
        }
      }
    }
  } else {
    constexpr int together = Tile<T, columns, rows>::in_chunk;
    const int t = lane % 4;
#pragma unroll
    for (int c = 0; c < columns / together; ++c) {
      C left[blocks][2][together];
#pragma unroll
      for (int e = 0; e < together; ++e) {
        const int k = c * together + e;
#pragma unroll
        for (int m = 0; m < blocks; ++m) {
          for (int h = 0; h < 2; ++h) {
            left[m][h][e] = __shfl_sync(whole_warp, a[m].at[k / 4][h], k % 4, 4);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < rows / 8; ++n) {
        using Chunk = Pack<T, together>;
        const Chunk first = *reinterpret_cast<const Chunk*>(tile.chunk(8 * n + 2 * t, c)),
                    second = *reinterpret_cast<const Chunk*>(tile.chunk(8 * n + 2 * t + 1, c));
#pragma unroll
        for (int e = 0; e < together; ++e) {
#pragma unroll
          for (int m = 0; m < blocks; ++m) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              sum[m][n][2 * h] += left[m][h][e] * first.at[e];
              sum[m][n][2 * h + 1] += left[m][h][e] * second.at[e];
            }
          }
        }
      }
    }
  }
}

// sum += a tile for each of `blocks` of 16 rows: a sum over the tile's rows.
template <class T, int columns, int rows, int blocks, class C>
__device__ __forceinline__ void add_over_rows(C (&sum)[blocks][columns / 8][4],
                                              const Shares<T, rows> (&a)[blocks],
                                              const Tile<T, columns, rows>& tile) {
  const int lane = static_cast<int>(threadIdx.x) % warp;
  if constexpr (on_tensor_cores<T>) {
    // Matrices: 16 rows with eight columns, and these with the next eight.
#pragma unroll
    for (int k = 0; k < rows / 16; ++k) {
#pragma unroll
      for (int n = 0; n < columns / 8; n += 2) {
        std::uint32_t b[4];
        load_matrices<true>(b, tile.chunk(16 * k + lane % 16, n + lane / 16));
#pragma unroll
        for (int m = 0; m < blocks; ++m) {
          multiply_add<T>(sum[m][n], a[m].at[k], b[0], b[1]);
          multiply_add<T>(sum[m][n + 1], a[m].at[k], b[2], b[3]);
        }
      }
    }
  } else {
    constexpr int in_chunk = Tile<T, columns, rows>::in_chunk;
    const int t = lane % 4;
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      C left[blocks][2];
#pragma unroll
      for (int m = 0; m < blocks; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          left[m][h] = __shfl_sync(whole_warp, a[m].at[k / 8][2 * h + k % 2], k % 8 / 2, 4);
        }
      }
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        const int column = 8 * n + 2 * t;
        const auto right = *reinterpret_cast<const Pack<T, 2>*>(tile.chunk(k, column / in_chunk) +
                                                                column % in_chunk);
#pragma unroll
        for (int m = 0; m < blocks; ++m) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            sum[m][n][2 * h] += left[m][h] * right.at[0];
            sum[m][n][2 * h + 1] += left[m][h] * right.at[1];
          }
        }
      }
    }
  }
}

// Rows `first` ... of out = factor[h] sum, for h = 0 of row g and 1 of row g + 8.
template <class T, int columns, class C>
__device__ __forceinline__ void store_rows(const Matrix<T>& out, int first,
                                           const C (&sum)[columns / 8][4], const C (&factor)[2]) {
  const int g = static_cast<int>(threadIdx.x) % warp / 4, t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first + g + 8 * h;
    if (row >= out.count) continue;
    T* to = out.at + row * out.row;
#pragma unroll
    for (int n = 0; n < columns / 8; ++n) {
      const int column = 8 * n + 2 * t;
      const Pack<T, 2> two{static_cast<T>(sum[n][2 * h] * factor[h]),
                           static_cast<T>(sum[n][2 * h + 1] * factor[h])};
      if (out.aligned) {
        if (column < out.columns) *reinterpret_cast<Pack<T, 2>*>(to + column) = two;
      } else {
        if (column < out.columns) to[column] = two.at[0];
        if (column + 1 < out.columns) to[column + 1] = two.at[1];
      }
    }
  }
}

}  // namespace peal::cuda
