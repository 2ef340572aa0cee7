// SPDX-License-Identifier: Apache-2.0
// Einstein's summation: products of tensors whose dimensions have names, summed over those that the
// result has not. Two operands at a time, from the left, are brought to one product of matrices
// each; what has nothing to sum over is multiplied by elements. Operands have one type and device.
// Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <string_view>
#include <vector>

namespace peal {

// "bij,bjk->bik" names the dimensions of two operands and of the result by letters; blanks do not
// count. A size is the same wherever its letter stands, or 1, which stretches.
//   ii->i        a letter twice in one operand is its diagonal
//   ...ij->...ji "..." stands for any dimensions, which broadcast; they are summed where the result
//                has no "..."
//   ij,jk        without "->" the result has what "..." stands for, and then the letters that occur
//                once, as in the alphabet, capitals first
Tensor einsum(std::string_view equation, const Tensors& operands);

// Summed over dims_a of a with dims_b of b, in this order, or over the last `dims` of a with the
// first of b; the result has the other dimensions of a, and then those of b.
Tensor tensordot(const Tensor& a, const Tensor& b, int dims = 2);
Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& dims_a,
                 const std::vector<int>& dims_b);

}  // namespace peal
