// SPDX-License-Identifier: Apache-2.0
// Windows along the depth of volumes, by which convolutions of volumes are those of images. Thread
// safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// One window every `stride`, of `kernel` cells that `dilation` parts.
struct DepthWindows {
  std::int64_t count, kernel, stride, dilation;
  std::int64_t reach() const { return (count - 1) * stride + (kernel - 1) * dilation + 1; }
};

// x [N, C, D, H, W] -> [N count, C kernel, H, W].
Tensor by_windows(const Tensor& x, const DepthWindows& windows);
// The opposite, where what lies in several windows adds up: x [N count, C kernel, H, W] -> [N, C,
// size, H, W], of which the elements from `first` on lie in windows, as far as those reach.
Tensor from_windows(const Tensor& x, const DepthWindows& windows, std::int64_t first,
                    std::int64_t size);

}  // namespace peal
