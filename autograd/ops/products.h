// SPDX-License-Identifier: Apache-2.0
// Products of vectors, matrices and batches of matrices under PyTorch's names, all made of matmul()
// (matmul.h), and their sums with another tensor. Sums over named dimensions are in einsum.h.
// Operands have one type and device, but those of outer() and kron(), which are products of
// elements and promote. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <optional>

namespace peal {

// [M, K] x [K, N], [B, M, K] x [B, K, N], [M, K] x [K], [K] x [K].
Tensor mm(const Tensor& a, const Tensor& b);
Tensor bmm(const Tensor& a, const Tensor& b);
Tensor mv(const Tensor& a, const Tensor& b);
Tensor dot(const Tensor& a, const Tensor& b);
// Each of [M] times each of [N]: [M, N].
Tensor outer(const Tensor& a, const Tensor& b);
// Each element of a times the whole of b: sizes are multiplied, the missing ones in front are 1. Of
// at most 4 dimensions.
Tensor kron(const Tensor& a, const Tensor& b);
// The vector at right angles to both, of vectors of three along dim; the other sizes broadcast.
// Without dim, along the first dimension of a that is 3 (linalg::cross: the last).
Tensor cross(const Tensor& a, const Tensor& b, std::optional<int> dim = std::nullopt);

// y[..., o] = a weight[o] b + bias[o] of vectors a [..., in1] and b [..., in2] with equal sizes in
// front: weight [out, in1, in2], bias [out] or undefined. Under Autocast in the widest of their
// types.
Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias = {});

// beta x + alpha a b, where x stretches to the product: that of mm(), mv(), bmm(). Where beta is 0
// x does not count, not even what is NaN in it. Of integers beta and alpha are integers.
Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
Tensor addmv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1);
Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1,
               Scalar alpha = 1);

}  // namespace peal
