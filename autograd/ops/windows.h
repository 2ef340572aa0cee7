// SPDX-License-Identifier: Apache-2.0
// Windows along one dimension: how many there are, and which elements they hold. Thread safety:
// pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace peal {

// Where the cells of windows lie: cell k of window i at i stride + k dilation, window by window.
inline std::vector<std::int64_t> cells_of_windows(std::int64_t windows, std::int64_t kernel,
                                                  std::int64_t stride, std::int64_t dilation) {
  std::vector<std::int64_t> cells;
  cells.reserve(static_cast<std::size_t>(windows * kernel));
  for (std::int64_t i = 0; i < windows; ++i) {
    for (std::int64_t k = 0; k < kernel; ++k) cells.push_back(i * stride + k * dilation);
  }
  return cells;
}

// As an index for index_select() and its like.
inline Tensor index_of_places(const std::vector<std::int64_t>& places, Device device) {
  return Tensor::from(places, {static_cast<std::int64_t>(places.size())}, device);
}

// Along one dimension of a pool.
struct PoolWindows {
  std::int64_t kernel, stride, padding, dilation;
  bool ceil_mode;

  // Negative where not even one fits. A last window that is cut off counts with ceil_mode, if it
  // begins before the padding behind.
  std::int64_t count(std::int64_t size) const {
    const std::int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
    const std::int64_t ragged = ceil_mode ? stride - 1 : 0;
    if (room + ragged < 0) return -1;
    const std::int64_t all = (room + ragged) / stride + 1;
    return ceil_mode && (all - 1) * stride >= size + padding ? all - 1 : all;
  }
};

// Windows of different numbers of cells: at[window * most + cell], where a shorter one has its last
// cell again.
struct Cells {
  std::int64_t windows, most;
  std::vector<std::int64_t> at;
};
// Of each window what lies inside of `size`.
Cells cells_inside(std::string_view op, std::int64_t size, std::int64_t windows,
                   const PoolWindows& pool);

// The largest of each window of x [N, C, ...], with a number of Cells for each dimension behind the
// channels, and its index among all elements there. The elements of all windows are copied.
// Recorded (adaptive_pool.cpp).
Extreme largest_in_cells(const Tensor& x, const std::vector<Cells>& cells);

// with_batch() of what has indices as well.
template <class F>
Extreme extremes_with_batch(const Tensor& x, int dims, const F& f) {
  if (x.dim() != dims + 1) return f(x);
  const Extreme found = f(unsqueeze(x, 0));
  return {squeeze(found.values, 0), found.indices.defined() ? squeeze(found.indices, 0) : Tensor()};
}

}  // namespace peal
