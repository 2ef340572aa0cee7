// SPDX-License-Identifier: Apache-2.0
// Extremes and averages over windows of sequences [N, C, L], images [N, C, H, W] and volumes [N, C,
// D, H, W], or of one of these without N. Windows that are shares of the input: adaptive_pool.h;
// the way back, and means of powers: unpool.h. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/pair.h>
#include <peal/autograd/ops/reduce.h>

#include <optional>

namespace peal {

// From one window to the next; where none is given, the kernel's size.
using PoolStride1d = std::optional<Single>;
struct PoolStride : std::optional<Pair> {
  using std::optional<Pair>::optional;
  constexpr PoolStride(std::int64_t height, std::int64_t width)
      : std::optional<Pair>(Pair(height, width)) {}
};
struct PoolStride3d : std::optional<Triple> {
  using std::optional<Triple>::optional;
  constexpr PoolStride3d(std::int64_t depth, std::int64_t height, std::int64_t width)
      : std::optional<Triple>(Triple(depth, height, width)) {}
};

struct MaxPool1dOptions {
  PoolStride1d stride{};
  std::int64_t padding = 0, dilation = 1;
  bool ceil_mode = false;
};
struct MaxPool2dOptions {
  PoolStride stride{};
  Pair padding = 0;        // at most half of the kernel; it never is the largest
  Pair dilation = 1;       // from one cell of the window to the next
  bool ceil_mode = false;  // a ragged last window counts
};
struct MaxPool3dOptions {
  PoolStride3d stride{};
  Triple padding = 0;
  Triple dilation = 1;
  bool ceil_mode = false;
};

// The largest of each window; NaN wins. H' = (H + 2 padding - dilation (kernel - 1) - 1) / stride +
// 1. (A window of more than 256 cells of a plane is copied.)
Tensor max_pool1d(const Tensor& x, std::int64_t kernel, const MaxPool1dOptions& options = {});
Tensor max_pool2d(const Tensor& x, Pair kernel, const MaxPool2dOptions& options = {});
Tensor max_pool3d(const Tensor& x, Triple kernel, const MaxPool3dOptions& options = {});
// And where it lies: its index among all elements behind the channels in a row, i64.
Extreme max_pool1d_with_indices(const Tensor& x, std::int64_t kernel,
                                const MaxPool1dOptions& options = {});
Extreme max_pool2d_with_indices(const Tensor& x, Pair kernel, const MaxPool2dOptions& options = {});
Extreme max_pool3d_with_indices(const Tensor& x, Triple kernel,
                                const MaxPool3dOptions& options = {});

// In the order of PyTorch's arguments.
struct AvgPool1dOptions {
  PoolStride1d stride{};
  std::int64_t padding = 0;
  bool ceil_mode = false, count_include_pad = true;
};
struct AvgPool2dOptions {
  PoolStride stride{};
  Pair padding = 0;
  bool ceil_mode = false;                             // a ragged last window counts
  bool count_include_pad = true;                      // zeros of the padding count as elements
  std::optional<std::int64_t> divisor_override = {};  // what sums are divided by
};
struct AvgPool3dOptions {
  PoolStride3d stride{};
  Triple padding = 0;
  bool ceil_mode = false, count_include_pad = true;
  std::optional<std::int64_t> divisor_override = {};
};

// H' = (H + 2 padding - kernel) / stride + 1; padding is at most half of the kernel.
Tensor avg_pool1d(const Tensor& x, std::int64_t kernel, const AvgPool1dOptions& options = {});
Tensor avg_pool2d(const Tensor& x, Pair kernel, const AvgPool2dOptions& options = {});
Tensor avg_pool3d(const Tensor& x, Triple kernel, const AvgPool3dOptions& options = {});

}  // namespace peal
