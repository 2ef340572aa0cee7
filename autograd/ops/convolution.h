// SPDX-License-Identifier: Apache-2.0
// Convolution and pooling on [N, C, H, W].
#pragma once

#include <peal/autograd/core/tensor.h>

#include <array>

namespace peal {

struct Conv2dOptions {
  std::array<std::int64_t, 2> stride{1, 1};
  std::array<std::int64_t, 2> padding{0, 0};
  std::array<std::int64_t, 2> dilation{1, 1};  // from one cell of the kernel to the next
  std::int64_t groups = 1;                     // channels in and out fall apart into as many
};

// x [N, C, H, W], weight [O, C / groups, kH, kW], bias [O] or undefined -> [N, O, H', W'],
// H' = (H + 2 padding - dilation (kH - 1) - 1) / stride + 1 (cross-correlation, as in PyTorch).
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});

// The largest of each kernel x kernel window; stride 0 means the kernel's size. No padding; ragged
// edges are dropped.
Tensor max_pool2d(const Tensor& x, std::array<std::int64_t, 2> kernel,
                  std::array<std::int64_t, 2> stride = {0, 0});

}  // namespace peal
