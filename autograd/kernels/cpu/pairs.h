// SPDX-License-Identifier: Apache-2.0
// Products of bf16 with sums in f32, by dot products of pairs (AVX512_BF16, VDPBF16PS): what a
// product sums over is taken two elements at a time, which lie together. A tile of the result stays
// in registers while it is summed, and is rounded as it leaves them. Compiled for the CPUs that
// have the instruction, and called on no others. Thread safety: pure functions but for what they
// are told to write.
#pragma once

#include <cstdint>

namespace peal::cpu::avx512bf16 {

// Two elements of bf16, the first in the lower half.
using Bf16Pair = std::int32_t;

// Rows and columns of a tile, and from one pair of a tile's rows to the next where split_rows() has
// laid them.
inline constexpr std::int64_t pair_rows = 6, pair_columns = 64, pair_step = 8;

// [m, n] = onto + a b, over k pairs. Bf16Pair p of row i is a[i row_a + p step_a]; those of all
// columns lie side by side from b[p pair_columns]. Row i of onto begins at onto[i row_onto] (a bias
// has rows 0 apart), row i of the result row_out elements after the one before.
struct PairProduct {
  std::int64_t m, n, k, row_a, step_a, row_out, row_onto;
};
// Where one of them goes, the other null.
struct PairResult {
  float* wide;
  std::uint16_t* narrow;
};

// REQUIRES: n <= pair_columns, and that whole vectors of 16 pairs can be read from b. `onto` may be
// null, or the result.
void multiply_pairs(const PairResult& to, const Bf16Pair* a, const Bf16Pair* b, const float* onto,
                    const PairProduct& o);

// A panel [pairs, pair_columns] from n columns of a matrix [k, ..]: rows 2p and 2p + 1 make pairs,
// and a last one alone with 0.
void join_rows(Bf16Pair* to, const std::uint16_t* from, std::int64_t row, std::int64_t k,
               std::int64_t n);
// For a left operand that is stored as [k, ..]: of n columns, tile by tile [pairs, pair_step].
void split_rows(Bf16Pair* to, const std::uint16_t* from, std::int64_t row, std::int64_t k,
                std::int64_t n);

}  // namespace peal::cpu::avx512bf16
