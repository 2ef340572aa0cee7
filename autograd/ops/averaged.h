// SPDX-License-Identifier: Apache-2.0
// The means that average pools are made of. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/kernels/geometry.h>

#include <string_view>

namespace peal {

// An Error unless x is [N, C, H, W] of a floating type, with pixels.
void check_images(std::string_view op, const Tensor& x);
// x [N, C, H, W] -> [N, C, out_height, out_width]. Recorded (average_pool.cpp).
Tensor average(std::string_view op, const Tensor& x, const AveragePool2d& windows);

}  // namespace peal
