// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/bf16.h>
#include <peal/autograd/kernels/cpu/pair_panels.h>
#include <peal/autograd/kernels/cpu/pairs.h>
#include <peal/autograd/kernels/cpu/panel_tiles.h>
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>

#include <algorithm>

namespace peal::cpu {

#if defined(__x86_64__)

namespace {

using avx512bf16::Bf16Pair;
using avx512bf16::pair_columns;
using avx512bf16::pair_rows;
using avx512bf16::pair_step;

// Pairs of a panel: 128 KiB, which a second-level cache holds.
constexpr std::int64_t panel_pairs = 512;
// Rows that pay for copying the right operand.
constexpr std::int64_t rows_for_pairs = 48;

std::uint16_t* elements_of(const Tensor& x) { return static_cast<std::uint16_t*>(x.raw()); }
Tensor pairs_room(std::int64_t pairs) { return Tensor::empty({pairs}, DType::i32, Device{}); }

// The left operand, in tiles of rows: pairs of a row `step` apart, rows `row`, tiles `tile`.
struct LeftTiles {
  Tensor copy;
  const Bf16Pair* at;
  std::int64_t row, step, tile;
};

LeftTiles left_tiles(const Tensor& a, const Product& o) {
  if (!o.transpose_a) {
    return {{}, reinterpret_cast<const Bf16Pair*>(elements_of(a)), o.k / 2, 1, pair_rows * o.k / 2};
  }
  const std::int64_t tiles = (o.m + pair_rows - 1) / pair_rows, size = (o.k + 1) / 2 * pair_step;
  const Tensor copy = pairs_room(tiles * size);
  auto* const to = copy.data<Bf16Pair>();
  parallel_for(tiles, pair_rows * o.k, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * pair_rows;
    avx512bf16::split_rows(to + begin * size, elements_of(a) + first, o.m, o.k,
                           std::min(o.m, end * pair_rows) - first);
  });
  return {copy, to, 1, pair_step, size};
}

// A panel of n columns from j on, of pairs [p, p + count).
void copy_pairs(Bf16Pair* panel, const Tensor& b, const Product& o, std::int64_t p,
                std::int64_t count, std::int64_t j, std::int64_t n) {
  if (o.transpose_b) {
    // Pairs are whole elements here, which keep their bits.
    product_loops<float>().transpose(
        reinterpret_cast<float*>(panel),
        reinterpret_cast<const float*>(elements_of(b) + j * o.k + 2 * p), n, count, o.k / 2,
        pair_columns);
  } else {
    avx512bf16::join_rows(panel, elements_of(b) + 2 * p * o.n + j, o.n,
                          std::min(2 * count, o.k - 2 * p), n);
  }
}

// Where a panel's sums go, from row to row `row` elements, and what they begin with.
struct PanelSums {
  float* wide;
  std::uint16_t* narrow;
  std::int64_t row;
  const float* onto;
  std::int64_t row_onto;
};

// All rows meet a panel of n columns, of pairs [p, p + count), a tile at a time. The result's lines
// are asked for first: they come while the tile is summed.
void meet_pairs(const PanelSums& to, const LeftTiles& left, const Bf16Pair* panel, std::int64_t m,
                std::int64_t n, std::int64_t p, std::int64_t count) {
  constexpr std::int64_t line = 64;
  for (std::int64_t i = 0; i < m; i += pair_rows) {
    const std::int64_t rows = std::min(pair_rows, m - i);
    const avx512bf16::PairResult out{to.wide != nullptr ? to.wide + i * to.row : nullptr,
                                     to.narrow != nullptr ? to.narrow + i * to.row : nullptr};
    const std::int64_t size = to.wide != nullptr ? sizeof(float) : sizeof(std::uint16_t);
    const char* first = to.wide != nullptr ? reinterpret_cast<const char*>(out.wide)
                                           : reinterpret_cast<const char*>(out.narrow);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t at = 0; at < n * size; at += line) {
        __builtin_prefetch(first + r * to.row * size + at, 1);
      }
    }
    avx512bf16::multiply_pairs(out, left.at + i / pair_rows * left.tile + p * left.step, panel,
                               to.onto != nullptr ? to.onto + i * to.row_onto : nullptr,
                               {rows, n, count, left.row, left.step, to.row, to.row_onto});
  }
}

}  // namespace

bool multiply_in_pair_panels(const Tensor& out, const Tensor& a, const Tensor& b,
                             const Tensor& bias, const Product& o) {
  // Rows are read as pairs where they lie along the sums.
  const bool along = !o.transpose_a || o.transpose_b;
  if (!multiplies_bf16_in_pairs() || o.m < rows_for_pairs || o.n < pair_columns ||
      o.k < pair_columns / 2 || (along && o.k % 2 != 0) || (o.transpose_a && o.transpose_b)) {
    return false;
  }
  const PanelColumns columns(o.n);
  const std::int64_t pairs = (o.k + 1) / 2, most = std::min(panel_pairs, pairs);
  if (!omp_in_parallel() && columns.panels() < omp_get_max_threads()) return false;
  const LeftTiles left = left_tiles(a, o);
  const Tensor summand = bias.defined() ? Tensor::empty({o.n}, DType::f32, Device{}) : Tensor();
  if (bias.defined()) cast(summand, bias);
  const float* added = bias.defined() ? summand.data<float>() : nullptr;
  float* const wide = out.dtype() == DType::f32 ? out.data<float>() : nullptr;
  parallel_for(columns.panels(), pair_columns * o.m * o.k / 16,
               [&](std::int64_t begin, std::int64_t end) {
                 const Tensor panel = pairs_room(most * pair_columns);
                 // The sums of a result that is rounded, until the last of them.
                 const Tensor room = wide == nullptr && pairs > panel_pairs
                                         ? Tensor::empty({o.m, pair_columns}, DType::f32, Device{})
                                         : Tensor();
                 float* const sums = room.defined() ? room.data<float>() : nullptr;
                 for (std::int64_t i = begin; i < end; ++i) {
                   const std::int64_t j = columns.begin(i), n = columns.count(i);
                   PanelSums to{wide != nullptr ? wide + j : sums, nullptr,
                                wide != nullptr ? o.n : pair_columns,
                                added != nullptr ? added + j : nullptr, 0};
                   for (std::int64_t p = 0; p < pairs; p += most) {
                     const std::int64_t count = std::min(most, pairs - p);
                     copy_pairs(panel.data<Bf16Pair>(), b, o, p, count, j, n);
                     if (p + count == pairs && wide == nullptr) {
                       to.wide = nullptr;
                       to.narrow = elements_of(out) + j;
                       to.row = o.n;
                     }
                     meet_pairs(to, left, panel.data<Bf16Pair>(), o.m, n, p, count);
                     to.onto = to.wide;
                     to.row_onto = to.row;
                   }
                 }
               });
  return true;
}

#else

bool multiply_in_pair_panels(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                             const Product&) {
  return false;
}

#endif

}  // namespace peal::cpu
