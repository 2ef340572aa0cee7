// SPDX-License-Identifier: Apache-2.0
// Convolutions of sequences [N, C, L], images [N, C, H, W] and volumes [N, C, D, H, W], or of one
// of these without N. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/conv_padding.h>
#include <peal/autograd/ops/pair.h>

namespace peal {

struct Conv2dOptions {
  Pair stride = 1;
  ConvPadding<Pair> padding = 0;
  Pair dilation = 1;        // from one cell of the kernel to the next
  std::int64_t groups = 1;  // channels in and out fall apart into as many
};

// x [N, C, H, W], weight [O, C / groups, kH, kW], bias [O] or undefined -> [N, O, H', W'],
// H' = (H + 2 padding - dilation (kH - 1) - 1) / stride + 1 (cross-correlation, as in PyTorch).
// On the CPU an infinite element may make NaN of results up to three beside those that see it
// (Winograd's algorithm, docs/decisions/0009-winograd-convolution.md).
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv2dOptions& options = {});

struct Conv1dOptions {
  std::int64_t stride = 1;
  ConvPadding<Single> padding = 0;
  std::int64_t dilation = 1, groups = 1;
};

// The same along one dimension: x [N, C, L], weight [O, C / groups, K] -> [N, O, L'].
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv1dOptions& options = {});

struct Conv3dOptions {
  Triple stride = 1;
  ConvPadding<Triple> padding = 0;
  Triple dilation = 1;
  std::int64_t groups = 1;
};

// And along three: x [N, C, D, H, W], weight [O, C / groups, kD, kH, kW] -> [N, O, D', H', W'].
// Made by conv2d of kD C channels, so that x is copied kD times.
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Conv3dOptions& options = {});

}  // namespace peal
