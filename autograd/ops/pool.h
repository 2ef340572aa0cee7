// SPDX-License-Identifier: Apache-2.0
// Extremes and averages over windows of [N, C, H, W].
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/pair.h>

#include <optional>

namespace peal {

// From one window to the next; where none is given, the kernel's size.
struct PoolStride : std::optional<Pair> {
  using std::optional<Pair>::optional;
  constexpr PoolStride(std::int64_t height, std::int64_t width)
      : std::optional<Pair>(Pair(height, width)) {}
};

struct MaxPool2dOptions {
  PoolStride stride{};
  Pair padding = 0;        // at most half of the kernel; it never is the largest
  Pair dilation = 1;       // from one cell of the window to the next
  bool ceil_mode = false;  // a ragged last window counts
};

// The largest of each window; NaN wins. H' = (H + 2 padding - dilation (kernel - 1) - 1) / stride +
// 1. A window has at most 256 cells.
Tensor max_pool2d(const Tensor& x, Pair kernel, const MaxPool2dOptions& options = {});

struct AvgPool2dOptions {
  PoolStride stride{};
  Pair padding = 0;
  bool count_include_pad = true;  // zeros of the padding count as elements
};

// H' = (H + 2 padding - kernel) / stride + 1; padding is at most half of the kernel.
Tensor avg_pool2d(const Tensor& x, Pair kernel, const AvgPool2dOptions& options = {});

// To [N, C, size...]: each output is the mean of its share of the input; shares may overlap.
Tensor adaptive_avg_pool2d(const Tensor& x, Pair size);

}  // namespace peal
