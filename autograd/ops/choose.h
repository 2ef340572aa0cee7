// SPDX-License-Identifier: Apache-2.0
// Comparisons, choices by them, and changes of type. Operands broadcast (broadcast.h).
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// Tensors of bool; not recorded. A NaN is unequal to all, and neither smaller nor larger.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
// Against a number, which is converted to a's type.
Tensor eq(const Tensor& a, double b);
Tensor ne(const Tensor& a, double b);
Tensor lt(const Tensor& a, double b);
Tensor le(const Tensor& a, double b);
Tensor gt(const Tensor& a, double b);
Tensor ge(const Tensor& a, double b);

// Of masks (bool), or of whether numbers differ from 0; not recorded. The operators are for masks.
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);
Tensor operator&(const Tensor& a, const Tensor& b);
Tensor operator|(const Tensor& a, const Tensor& b);
Tensor operator^(const Tensor& a, const Tensor& b);
Tensor operator~(const Tensor& x);

// a where condition (bool) is true, else b.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

// The same numbers as another type (PyTorch: x.to(dtype)); x itself where it has that type.
// Recorded between floating types; to an integer it cuts off the fraction, to bool it asks for !=
// 0.
Tensor cast(const Tensor& x, DType dtype);

}  // namespace peal
