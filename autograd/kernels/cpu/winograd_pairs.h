// SPDX-License-Identifier: Apache-2.0
// Winograd's transforms for convolutions of bf16 with a kernel of 3 x 3 and stride 1, F(2 x 2, 3 x
// 3) (Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016, section 4.1): 16
// products of matrices, one for each position of a 4 x 4 tile, instead of 36 multiplications for
// each 2 x 2 of results. Transforms are in f32, and rounded as products of pairs (pairs.h) want
// them. Compiled for CPUs with AVX512_BF16, and called on no others. Thread safety: pure functions
// but for what they are told to write.
#pragma once

#include <peal/autograd/kernels/cpu/pairs.h>

#include <cstdint>

namespace peal::cpu::avx512bf16 {

inline constexpr std::int64_t positions = 16;

// Planes [height, width] of images with so many channels, seen by tiles: `down` x `across` of them,
// whose first begins `padding` rows and columns outside the plane.
struct TiledPlanes {
  std::int64_t channels, height, width, down, across, padding;
};
// Rows of tiles, counted over all images: at most as many as pair_columns has room for.
struct TileRows {
  std::int64_t first, count;
};

// Of channels c and c + 1, tiles as columns: to[position * step + tile] of a panel.
void tiles_to_pairs(Bf16Pair* to, std::int64_t step, const std::uint16_t* x, std::int64_t c,
                    const TiledPlanes& o, const TileRows& rows);
// Of channel c, tiles side by side, pair_columns of them, with 0 behind: to[position * step +
// tile].
void tiles_to_row(std::uint16_t* to, std::int64_t step, const std::uint16_t* x, std::int64_t c,
                  const TiledPlanes& o, const TileRows& rows);
// The same of what 2 x 2 results are the gradient of.
void gradients_to_row(std::uint16_t* to, std::int64_t step, const std::uint16_t* dy, std::int64_t c,
                      const TiledPlanes& o, const TileRows& rows);
// Channel c of the results, from sums[position * step + tile].
void sums_to_results(std::uint16_t* y, const float* sums, std::int64_t step, float bias,
                     std::int64_t c, const TiledPlanes& o, const TileRows& rows);
// n kernels, cell k of number i being w[k * w_step + i]: to[position * step + i].
void kernels_to_row(std::uint16_t* to, std::int64_t step, const float* w, std::int64_t w_step,
                    std::int64_t n);
// And back, for their gradients: from[position * step + i].
void sums_to_kernels(float* dw, const float* from, std::int64_t step, std::int64_t n);

}  // namespace peal::cpu::avx512bf16
