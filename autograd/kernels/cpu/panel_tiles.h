// SPDX-License-Identifier: Apache-2.0
// What products in panels (panels.h, blocks.h) share: which columns a panel has, how it is copied,
// and how rows meet it tile by tile while what comes next is asked for. Thread safety: pure.
#pragma once

#include <peal/autograd/kernels/cpu/gemm.h>
#include <peal/autograd/kernels/cpu/loops.h>

#include <algorithm>
#include <cstdint>

namespace peal::cpu {

inline constexpr std::int64_t cache_line = 64 / sizeof(float);

// Rows of a panel that a second-level cache holds beside other things: 144 KiB of AVX-512's tiles,
// 18 KiB of AVX2's.
inline std::int64_t panel_rows() { return 36 * product_loops<float>().lanes; }

// A result's columns, dealt to panels in whole vectors: no panel is much narrower than another, as
// a tile of one vector would wait for each sum.
class PanelColumns {
 public:
  explicit PanelColumns(std::int64_t n)
      : n_(n),
        lanes_(product_loops<float>().lanes),
        vectors_((n + lanes_ - 1) / lanes_),
        panels_((n + product_loops<float>().columns - 1) / product_loops<float>().columns) {}

  std::int64_t panels() const { return panels_; }
  std::int64_t begin(std::int64_t panel) const {
    return std::min(n_, vectors_ * panel / panels_ * lanes_);
  }
  std::int64_t count(std::int64_t panel) const { return begin(panel + 1) - begin(panel); }

 private:
  std::int64_t n_, lanes_, vectors_, panels_;
};

// Rows of b from `begin`, columns from `first`.
inline void copy_panel(float* panel, const float* b, const Product& o, std::int64_t begin,
                       std::int64_t k, std::int64_t first, std::int64_t n) {
  const ProductLoops<float>& loops = product_loops<float>();
  if (o.transpose_b) {
    loops.transpose(panel, b + first * o.step_b() + begin, n, k, o.step_b(), loops.columns);
    return;
  }
  for (std::int64_t p = 0; p < k; ++p) {
    std::copy_n(b + (begin + p) * o.step_b() + first, n, panel + p * loops.columns);
  }
}

// What is read next: some rows, each of some cache lines. Tiles ask for it, column by column of
// lines.
struct Upcoming {
  const float* first = nullptr;
  std::int64_t rows = 0, lines = 0, step = 0;  // elements from one row to the next
  std::int64_t row = 0, line = 0;

  bool asked_by(SmallProduct& tile) {
    if (rows <= 0 || line >= lines) return false;
    tile.ahead = first + row * step + line * cache_line;
    tile.ahead_step = step;
    row += std::max<std::int64_t>(1, tile.k / SmallProduct::steps_a_line);
    if (row >= rows) {
      row = 0;
      ++line;
    }
    return true;
  }
};

inline Upcoming next_panel(const float* panel, std::int64_t k) {
  return {panel, k * product_loops<float>().columns / cache_line, 1, cache_line};
}

// Some rows of the left operand as they lie, and where they are summed.
struct PanelRows {
  float* out;
  const float *a, *onto;
};

// All of o's rows meet a panel, a tile at a time. The result's lines are asked for first: they come
// while the tile is summed.
inline void meet_panel(const PanelRows& rows, const float* panel, const SmallProduct& o,
                       Upcoming& panel_after, Upcoming& block_after) {
  const ProductLoops<float>& loops = product_loops<float>();
  for (std::int64_t i = 0; i < o.m; i += loops.rows) {
    SmallProduct tile = o;
    tile.m = std::min(loops.rows, o.m - i);
    float* sums = rows.out + i * o.row_out;
    for (std::int64_t r = 0; r < tile.m; ++r) {
      for (std::int64_t j = 0; j < o.n; j += cache_line) {
        __builtin_prefetch(sums + r * o.row_out + j, 1);
      }
    }
    if (!panel_after.asked_by(tile)) block_after.asked_by(tile);
    loops.multiply(sums, rows.a + i * o.row_a, panel,
                   rows.onto != nullptr ? rows.onto + i * o.row_onto : nullptr, tile);
  }
}

}  // namespace peal::cpu
