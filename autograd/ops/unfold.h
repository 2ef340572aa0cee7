// SPDX-License-Identifier: Apache-2.0
// Windows as copies: along one dimension, or over images as columns (im2col), and back. Thread
// safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/pair.h>

namespace peal {

// x.unfold(dim, size, step) of PyTorch: windows of `size` elements along dim, one every `step`.
// [..., n, ...] -> [..., (n - size) / step + 1, ..., size].
Tensor unfold(const Tensor& x, int dim, std::int64_t size, std::int64_t step);

struct UnfoldOptions {
  Pair dilation = 1, padding = 0, stride = 1;
};
// F.unfold: x [N, C, H, W] -> [N, C kH kW, L], a column for each of the L windows of a convolution.
Tensor unfold(const Tensor& x, Pair kernel, const UnfoldOptions& options = {});
// The opposite, where elements of several windows add up: x [N, C kH kW, L] -> [N, C, H, W] of this
// size.
Tensor fold(const Tensor& x, Pair output_size, Pair kernel, const UnfoldOptions& options = {});

}  // namespace peal
