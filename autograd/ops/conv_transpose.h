// SPDX-License-Identifier: Apache-2.0
// Transposed convolutions: what a convolution's gradient does to its input, so that strides make
// the result larger (Zeiler et al., "Deconvolutional networks", CVPR 2010). Of sequences, images
// and volumes, or of one of these without N. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/pair.h>

namespace peal {

// padding: what is cut off of the result on each side; output_padding: elements more on its far
// sides, fewer than stride or dilation.
struct ConvTranspose1dOptions {
  std::int64_t stride = 1, padding = 0, output_padding = 0, groups = 1, dilation = 1;
};
struct ConvTranspose2dOptions {
  Pair stride = 1, padding = 0, output_padding = 0;
  std::int64_t groups = 1;
  Pair dilation = 1;
};
struct ConvTranspose3dOptions {
  Triple stride = 1, padding = 0, output_padding = 0;
  std::int64_t groups = 1;
  Triple dilation = 1;
};

// x [N, C, H, W], weight [C, O / groups, kH, kW], bias [O] or undefined -> [N, O, H', W'],
// H' = (H - 1) stride - 2 padding + dilation (kH - 1) + output_padding + 1.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose2dOptions& options = {});
// x [N, C, L], weight [C, O / groups, K] -> [N, O, L'].
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose1dOptions& options = {});
// x [N, C, D, H, W], weight [C, O / groups, kD, kH, kW] -> [N, O, D', H', W']: conv_transpose2d of
// kD O channels, which are added up.
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose3dOptions& options = {});

}  // namespace peal
