// SPDX-License-Identifier: Apache-2.0
// Products of bf16 by the CPU's own instructions (AVX512_BF16, AMX), through oneDNN: twice as fast
// as in f32, with sums in f32. Each returns false, and has done nothing, where it does not serve
// the operands or the CPU has none; then they are computed in f32 (widening.h). Which is right for
// a CPU is decided once, so forward and backward may differ for one convolution only where oneDNN
// lacks one of them. Arguments as in kernels/table.h. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/kernels/table.h>

namespace peal::cpu {

// And PEAL_CPU_LEVEL does not ask for less than AVX-512.
bool multiplies_bf16();

bool matmul_bf16(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a,
                 bool transpose_b, const Tensor& bias);
bool batched_matmul_bf16(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a,
                         bool transpose_b);

bool conv2d_bf16(const Conv2dGeometry& geometry, const Tensor& y, const Tensor& x,
                 const Tensor& weight, const Tensor& bias);
bool conv2d_backward_bf16(const Conv2dGeometry& geometry, const Tensor& dx, const Tensor& dweight,
                          const Tensor& dbias, const Tensor& dy, const Tensor& x,
                          const Tensor& weight);

}  // namespace peal::cpu
