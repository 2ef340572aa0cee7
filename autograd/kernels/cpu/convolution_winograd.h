// SPDX-License-Identifier: Apache-2.0
// Convolutions of bf16 by Winograd's algorithm (winograd_pairs.h), in the layout that tensors have:
// 2.25 times fewer multiplications than by definition, of operands that are rounded once more,
// after their transform. All results of a tile are NaN where it holds an infinity (0009). For the
// CPUs on which bf16 is multiplied by AVX512_BF16 alone. Uses the calling thread's OpenMP threads;
// how many they are changes no bit of a result. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/kernels/table.h>

namespace peal::cpu {

// Whether it is the fastest way: 3 x 3, stride 1, no groups, an even plane and enough channels.
// REQUIRES: a CPU with AVX512_BF16.
bool winograd_bf16_serves(const Conv2dGeometry& o);

// y and x in bf16, weight in bf16 or f32, bias f32 or undefined.
void conv2d_winograd_bf16(const Conv2dGeometry& o, const Tensor& y, const Tensor& x,
                          const Tensor& weight, const Tensor& bias);
// dx in bf16; dweight, dbias in f32; each or undefined.
void conv2d_winograd_bf16_backward(const Conv2dGeometry& o, const Tensor& dx, const Tensor& dweight,
                                   const Tensor& dbias, const Tensor& dy, const Tensor& x,
                                   const Tensor& weight);

}  // namespace peal::cpu
