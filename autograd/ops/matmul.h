// SPDX-License-Identifier: Apache-2.0
// Matrix products. A transpose is a flag, never a strided view.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// [..., M, K] x [..., K, N] -> [..., M, N]; with a flag the operand is stored transposed ([..., K,
// M] or [..., N, K]). The leading dimensions broadcast. A vector is a row [1, K] as a and a column
// [K, 1] as b, which the result has not: [K] x [K] is their dot product, of no dimensions.
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a = false, bool transpose_b = false);

// x [..., in] -> [..., out] = x * weight^T + bias; weight [out, in], bias [out] or undefined
// (PyTorch's linear).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace peal
