// SPDX-License-Identifier: Apache-2.0
// Extremes and averages over windows of [N, C, H, W].
#pragma once

#include <peal/autograd/core/tensor.h>

#include <array>

namespace peal {

struct MaxPool2dOptions {
  std::array<std::int64_t, 2> stride{0, 0};   // 0: the kernel's size
  std::array<std::int64_t, 2> padding{0, 0};  // at most half of the kernel; it never is the largest
  std::array<std::int64_t, 2> dilation{1, 1};  // from one cell of the window to the next
  bool ceil_mode = false;                      // a ragged last window counts
};

// The largest of each window; NaN wins. H' = (H + 2 padding - dilation (kernel - 1) - 1) / stride +
// 1. A window has at most 256 cells.
Tensor max_pool2d(const Tensor& x, std::array<std::int64_t, 2> kernel,
                  const MaxPool2dOptions& options = {});

struct AvgPool2dOptions {
  std::array<std::int64_t, 2> stride{0, 0};  // 0: the kernel's size
  std::array<std::int64_t, 2> padding{0, 0};
  bool count_include_pad = true;  // zeros of the padding count as elements
};

// H' = (H + 2 padding - kernel) / stride + 1; padding is at most half of the kernel.
Tensor avg_pool2d(const Tensor& x, std::array<std::int64_t, 2> kernel,
                  const AvgPool2dOptions& options = {});

// To [N, C, size...]: each output is the mean of its share of the input; shares may overlap.
Tensor adaptive_avg_pool2d(const Tensor& x, std::array<std::int64_t, 2> size);

}  // namespace peal
