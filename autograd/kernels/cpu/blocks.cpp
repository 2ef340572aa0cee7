// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/cpu/blocks.h>
#include <peal/autograd/kernels/cpu/panel_tiles.h>
#include <peal/autograd/kernels/cpu/parallel.h>

namespace peal::cpu {
namespace {

// Of the left operand, in a second-level cache beside two panels; of the right one, in a
// third-level cache.
constexpr std::int64_t block_rows = 132, block_columns = 1536;
// A product's sums over rows [begin, begin + k) of b, of which some panels were copied.
struct PanelDepth {
  float* out;
  const float *a, *onto, *panels;
  std::int64_t begin, k, row_onto;
  std::int64_t first = 0, last = 0;  // panels
};

// Rows [from, to) meet panels [first, last).
void multiply_rows(const Product& o, const PanelDepth& d, const PanelColumns& columns,
                   std::int64_t from, std::int64_t to, std::int64_t first, std::int64_t last) {
  const ProductLoops<float>& loops = product_loops<float>();
  const std::int64_t tiles = (to - from + loops.rows - 1) / loops.rows;
  const std::int64_t blocks = (to - from + block_rows - 1) / block_rows;
  const auto row_of = [&](std::int64_t block) {
    return std::min(to, from + tiles * std::min(block, blocks) / blocks * loops.rows);
  };
  // As they are stored: k rows of some columns, or rows of k.
  const auto stored = [&](std::int64_t i) {
    return o.transpose_a ? d.a + d.begin * o.step_a() + i : d.a + i * o.step_a() + d.begin;
  };
  // Rows a page apart meet in few of a cache's sets; of long ones, columns use but a part of each
  // line that comes from afar.
  const bool copies = o.step_a() % 1024 == 0 || (o.transpose_a && o.step_a() > 1024);
  const Tensor copy =
      copies ? Tensor::empty({(tiles / blocks + 1) * loops.rows, d.k}, DType::f32, Device{})
             : Tensor();
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t i = row_of(block), m = row_of(block + 1) - i;
    const float* a = stored(i);
    std::int64_t step = o.step_a();
    if (copies) {
      const std::int64_t rows = o.transpose_a ? d.k : m, width = o.transpose_a ? m : d.k;
      for (std::int64_t r = 0; r < rows; ++r) {
        std::copy_n(a + r * step, width, copy.data<float>() + r * width);
      }
      a = copy.data<float>();
      step = width;
    }
    const std::int64_t after = row_of(block + 2) - row_of(block + 1);
    Upcoming block_after{stored(i + m), o.transpose_a ? d.k : after,
                         (o.transpose_a ? after : d.k) / cache_line + 1, o.step_a()};
    if (after == 0) block_after.rows = 0;
    for (std::int64_t panel = first; panel < last; ++panel) {
      const std::int64_t j = columns.begin(panel), size = d.k * loops.columns;
      const float* here = d.panels + (panel - d.first) * size;
      Upcoming panel_after =
          next_panel(panel + 1 < last ? here + size : d.panels + (first - d.first) * size, d.k);
      meet_panel({d.out + i * o.step_out() + j, a,
                  d.onto != nullptr ? d.onto + i * d.row_onto + j : nullptr},
                 here,
                 {m, columns.count(panel), d.k, o.transpose_a ? 1 : step, o.transpose_a ? step : 1,
                  loops.columns, o.step_out(), d.row_onto},
                 panel_after, block_after);
    }
  }
}

}  // namespace

bool is_large(const Product& o) { return o.m * o.n * o.k >= std::int64_t{1} << 30; }

void multiply_in_blocks(float* out, const float* a, const float* b, const float* onto,
                        std::int64_t row_onto, const Product& o) {
  const ProductLoops<float>& loops = product_loops<float>();
  const PanelColumns columns(o.n);
  const std::int64_t threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  const std::int64_t tiles = (o.m + loops.rows - 1) / loops.rows;
  const std::int64_t parts = (o.k + panel_rows() - 1) / panel_rows();
  const std::int64_t depth = ((o.k + parts - 1) / parts + 7) / 8 * 8;
  const std::int64_t groups =
      (columns.panels() * loops.columns + block_columns - 1) / block_columns;
  const Tensor panels = Tensor::empty(
      {columns.panels() / groups + 1, std::min(depth, o.k), loops.columns}, DType::f32, Device{});
  for (std::int64_t p = 0; p < o.k; p += depth) {
    const std::int64_t k = std::min(depth, o.k - p);
    for (std::int64_t group = 0; group < groups; ++group) {
      PanelDepth d{out,
                   a,
                   p == 0 ? onto : out,
                   panels.data<float>(),
                   p,
                   k,
                   p == 0 ? row_onto : o.step_out()};
      d.first = columns.panels() * group / groups;
      d.last = columns.panels() * (group + 1) / groups;
      const std::int64_t count = d.last - d.first;
      parallel_for(count, k * loops.columns, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          copy_panel(panels.data<float>() + i * k * loops.columns, b, o, p, k,
                     columns.begin(d.first + i), columns.count(d.first + i));
        }
      });
      if (tiles >= 8 * threads || count < threads) {
        parallel_for(tiles, loops.rows * count * loops.columns * k / 16,
                     [&](std::int64_t begin, std::int64_t end) {
                       multiply_rows(o, d, columns, begin * loops.rows,
                                     std::min(o.m, end * loops.rows), d.first, d.last);
                     });
      } else {
        parallel_for(count, loops.columns * o.m * k / 16,
                     [&](std::int64_t begin, std::int64_t end) {
                       multiply_rows(o, d, columns, 0, o.m, d.first + begin, d.first + end);
                     });
      }
    }
  }
}

}  // namespace peal::cpu
