// SPDX-License-Identifier: Apache-2.0
// Products of bf16 in panels of pairs (pairs.h), as panels.h has them of f32: the right operand is
// copied panel by panel, every row of the left one meets a panel while it is in a cache, and of a
// transposed left one the columns are copied first. Uses the calling thread's OpenMP threads.
// Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/cpu/gemm.h>

namespace peal::cpu {

// out, of bf16 or f32, = a b of bf16, and the bias of bf16, which may be undefined, in each row.
// False, and nothing done, where the CPU multiplies otherwise, or the copies do not pay.
bool multiply_in_pair_panels(const Tensor& out, const Tensor& a, const Tensor& b,
                             const Tensor& bias, const Product& o);

}  // namespace peal::cpu
