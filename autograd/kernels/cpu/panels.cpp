// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/kernels/cpu/blocks.h>
#include <peal/autograd/kernels/cpu/panel_tiles.h>
#include <peal/autograd/kernels/cpu/panels.h>
#include <peal/autograd/kernels/cpu/parallel.h>

#include <memory>

namespace peal::cpu {
namespace {

// Rows of a panel: 128 KiB of 64 columns, which a second-level cache holds.
constexpr std::int64_t depth = 512;

bool page_apart(std::int64_t step) { return step % 1024 == 0; }
// Whether the left operand's columns are read from rows a page apart: blocks copy them.
bool columns_apart(const Product& o) { return o.transpose_a && page_apart(o.step_a()); }

// Rows that pay for copying the right operand: wider vectors copy faster.
std::int64_t enough_rows() { return 768 / product_loops<float>().lanes; }

}  // namespace

bool multiply_in_panels(float* out, const float* a, const float* b, const float* onto,
                        std::int64_t row_onto, const Product& o) {
  const ProductLoops<float>& loops = product_loops<float>();
  const std::int64_t enough = enough_rows();
  const std::int64_t threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  const std::int64_t tiles = (o.m + loops.rows - 1) / loops.rows;
  const std::int64_t panels = (o.n + loops.columns - 1) / loops.columns;
  // Threads that share the rows copy every panel each; those that share the panels do not.
  const bool by_rows = o.m >= enough * threads;
  if (current_level() == Level::baseline || o.m < enough || o.k < loops.columns ||
      o.n < loops.columns || (!by_rows && panels < threads)) {
    return false;
  }
  if (is_large(o) || columns_apart(o)) {
    multiply_in_blocks(out, a, b, onto, row_onto, o);
    return true;
  }
  const std::int64_t row_a = o.transpose_a ? 1 : o.step_a();
  const std::int64_t step_a = o.transpose_a ? o.step_a() : 1;
  const auto part = [&](std::int64_t i, std::int64_t rows, std::int64_t from, std::int64_t to) {
    const auto panel = std::make_unique_for_overwrite<float[]>(
        static_cast<std::size_t>(std::min(depth, o.k) * loops.columns));
    for (std::int64_t j = from * loops.columns; j < std::min(o.n, to * loops.columns);
         j += loops.columns) {
      const std::int64_t n = std::min(loops.columns, o.n - j);
      float* sums = out + i * o.step_out() + j;
      for (std::int64_t p = 0; p < o.k; p += depth) {
        const std::int64_t k = std::min(depth, o.k - p);
        copy_panel(panel.get(), b, o, p, k, j, n);
        const float* first = onto != nullptr ? onto + i * row_onto + j : nullptr;
        loops.multiply(sums, a + i * row_a + p * step_a, panel.get(), p == 0 ? first : sums,
                       {rows, n, k, row_a, step_a, loops.columns, o.step_out(),
                        p == 0 ? row_onto : o.step_out()});
      }
    }
  };
  if (by_rows) {
    parallel_for(tiles, loops.rows * o.n * o.k / 16, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t i = begin * loops.rows;
      part(i, std::min(o.m, end * loops.rows) - i, 0, panels);
    });
  } else {
    parallel_for(panels, loops.columns * o.m * o.k / 16,
                 [&](std::int64_t begin, std::int64_t end) { part(0, o.m, begin, end); });
  }
  return true;
}

bool multiply_by_dots(float* out, const float* a, const float* b, const float* onto,
                      std::int64_t row_onto, const Product& o) {
  const ProductLoops<float>& loops = product_loops<float>();
  constexpr std::int64_t few_columns = 4, long_row = 4096;  // longer sums lose digits in f32
  if (o.n > few_columns || !o.transpose_b || o.transpose_a || o.k < loops.lanes || o.k > long_row) {
    return false;
  }
  parallel_for(o.m, o.n * o.k / 4, [&](std::int64_t begin, std::int64_t end) {
    loops.multiply_dots(out + begin * o.step_out(), a + begin * o.step_a(), b,
                        onto != nullptr ? onto + begin * row_onto : nullptr,
                        {end - begin, o.n, o.k, o.step_a(), 1, o.step_b(), o.step_out(), row_onto});
  });
  return true;
}

bool belongs_in_panels(const Product& o) {
  // oneDNN 2.6 is slow for rows a page apart: of the first on AVX-512 (by 15 %), of both on AVX2
  // (to half its speed).
  return is_large(o) || columns_apart(o) ||
         (o.transpose_a && current_level() != Level::avx512 && page_apart(o.step_b()));
}

Panels::Panels(const float* b, std::int64_t k, std::int64_t n, bool transposed) : k_(k), n_(n) {
  const std::int64_t wide = product_loops<float>().columns;
  const PanelColumns columns(n);
  // Of the allocator, which keeps memory of this size and aligns it.
  panels_ = Tensor::empty({columns.panels(), k, wide}, DType::f32, Device{});
  parallel_for(columns.panels(), k * wide, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      copy_panel(panels_.data<float>() + i * k * wide, b, {1, n, k, false, transposed}, 0, k,
                 columns.begin(i), columns.count(i));
    }
  });
}

bool Panels::worth(std::int64_t rows, std::int64_t k, std::int64_t n) {
  const std::int64_t columns = product_loops<float>().columns;
  return current_level() != Level::baseline && rows >= enough_rows() && k >= columns &&
         n >= columns;
}

void Panels::multiply(float* out, const float* a, std::int64_t m, bool add) const {
  const std::int64_t wide = product_loops<float>().columns;
  const PanelColumns columns(n_);
  const float* const panels = panels_.data<float>();
  const std::int64_t parts = (k_ + panel_rows() - 1) / panel_rows();
  const std::int64_t most = (k_ + parts - 1) / parts;
  parallel_for(columns.panels(), wide * m * k_ / 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* sums = out + columns.begin(i);
      for (std::int64_t p = 0; p < k_; p += most) {
        const std::int64_t k = std::min(most, k_ - p);
        const float* panel = panels + (i * k_ + p) * wide;
        // What lies behind this part: the rest of the panel, or another one.
        const float* behind =
            i + 1 == end && p + k == k_ ? panels + begin * k_ * wide : panel + k * wide;
        Upcoming after = next_panel(behind, k), nothing;
        meet_panel({sums, a + p, p > 0 || add ? sums : nullptr}, panel,
                   {m, columns.count(i), k, k_, 1, wide, n_, n_}, after, nothing);
      }
    }
  });
}

}  // namespace peal::cpu
