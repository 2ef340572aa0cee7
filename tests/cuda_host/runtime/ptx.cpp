// SPDX-License-Identifier: Apache-2.0
#include <cuda_host_ptx.h>
#include <peal/autograd/core/half.h>

#include "block.h"

#include <array>

namespace cuda_host {
namespace {

struct Load {
  const void* row;
  bool transposed;
  std::uint32_t out[4];
};

std::uint32_t two(std::uint16_t low, std::uint16_t high) {
  return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 16;
}

const char* load(void* const* lanes) {
  std::array<Load*, 32> all;
  for (std::size_t i = 0; i < 32; ++i) {
    all[i] = static_cast<Load*>(lanes[i]);
    if (reinterpret_cast<std::uintptr_t>(all[i]->row) % 16 != 0) {
      return "a row for ldmatrix is not on a boundary of 16 bytes";
    }
    if (all[i]->transposed != all[0]->transposed) return "lanes meet in different ldmatrix";
  }
  for (std::size_t matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t at[8][8];
    for (std::size_t i = 0; i < 8; ++i) std::memcpy(at[i], all[8 * matrix + i]->row, 16);
    for (std::size_t i = 0; i < 32; ++i) {
      const std::size_t row = i / 4, column = 2 * (i % 4);
      all[i]->out[matrix] = all[i]->transposed ? two(at[column][row], at[column + 1][row])
                                               : two(at[row][column], at[row][column + 1]);
    }
  }
  return nullptr;
}

struct Product {
  MatrixType type;
  std::array<std::uint32_t, 4> a;
  std::array<std::uint32_t, 2> b;
  float sum[4];
};

float value(MatrixType type, std::uint32_t bits) {
  if (type == MatrixType::bf16) return std::bit_cast<float>(bits << 16);
  peal::Half half;
  half.bits = static_cast<std::uint16_t>(bits);
  return half;
}

const char* multiply(void* const* lanes) {
  const MatrixType type = static_cast<Product*>(lanes[0])->type;
  float a[16][16], b[16][8];
  for (std::size_t i = 0; i < 32; ++i) {
    const auto& lane = *static_cast<Product*>(lanes[i]);
    if (lane.type != type) return "lanes meet in different mma";
    const std::size_t group = i / 4, within = 2 * (i % 4);
    for (std::size_t half = 0; half < 2; ++half) {
      const std::size_t shift = 16 * half, at = within + half;
      const auto of = [&](std::uint32_t word) { return value(type, word >> shift & 0xffffu); };
      a[group][at] = of(lane.a[0]);
      a[group + 8][at] = of(lane.a[1]);
      a[group][at + 8] = of(lane.a[2]);
      a[group + 8][at + 8] = of(lane.a[3]);
      b[at][group] = of(lane.b[0]);
      b[at + 8][group] = of(lane.b[1]);
    }
  }
  float sum[16][8] = {};
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t k = 0; k < 16; ++k) {
      for (std::size_t j = 0; j < 8; ++j) sum[i][j] += a[i][k] * b[k][j];
    }
  }
  for (std::size_t i = 0; i < 32; ++i) {
    auto& lane = *static_cast<Product*>(lanes[i]);
    for (std::size_t k = 0; k < 4; ++k) lane.sum[k] += sum[i / 4 + k / 2 * 8][2 * (i % 4) + k % 2];
  }
  return nullptr;
}

}  // namespace

void load_matrices(std::uint32_t (&out)[4], const void* row, bool transposed) {
  Load mine{row, transposed, {}};
  warp_together(load, &mine);
  std::memcpy(out, mine.out, sizeof out);
}

void multiply_add(MatrixType type, float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                  std::uint32_t b1) {
  Product mine{type, {a[0], a[1], a[2], a[3]}, {b0, b1}, {sum[0], sum[1], sum[2], sum[3]}};
  warp_together(multiply, &mine);
  std::memcpy(sum, mine.sum, sizeof sum);
}

}  // namespace cuda_host
