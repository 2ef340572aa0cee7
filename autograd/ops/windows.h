// SPDX-License-Identifier: Apache-2.0
// Windows along one dimension: which elements they hold. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
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
inline Tensor index_of(const std::vector<std::int64_t>& places, Device device) {
  return Tensor::from(places, {static_cast<std::int64_t>(places.size())}, device);
}

}  // namespace peal
