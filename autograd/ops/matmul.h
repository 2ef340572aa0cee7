// SPDX-License-Identifier: Apache-2.0
// Matrix products. A transpose is a flag, never a strided view.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// [..., M, K] x [..., K, N] -> [..., M, N]; with a flag the operand is stored transposed ([..., K,
// M] or [..., N, K]). The leading dimensions broadcast.
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a = false, bool transpose_b = false);

// x [..., in] -> [..., out] = x * weight^T + bias; weight [out, in], bias [out] or undefined
// (PyTorch's linear).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace peal
