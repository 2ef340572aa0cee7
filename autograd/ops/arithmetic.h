// SPDX-License-Identifier: Apache-2.0
// Arithmetic on tensors, element by element, with NumPy's broadcasting (sizes of 1 stretch, missing
// leading dimensions are 1). Operands of several types, numbers among them, are promoted as PyTorch
// does (promotion.h): x * 2 keeps x's type, and integers * 2.0 are f32. Division is true division:
// of integers and masks (bool) it is f32. Of masks the sum is "or" and the product "and"
// (choose.h). A number that an integer type does not hold is an Error, and so is a device that is
// not both operands'. The gradient of a stretched operand is summed over what it was stretched
// along. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, Scalar b);
Tensor sub(const Tensor& a, Scalar b);
Tensor mul(const Tensor& a, Scalar b);
Tensor div(const Tensor& a, Scalar b);
Tensor neg(const Tensor& a);

// x += alpha * y, x *= factor in x's own elements: not recorded, of one type, no broadcasting; they
// count a version of x. Error for a temporary that nobody else holds (core/in_place.h). What
// broadcasts, casts and is recorded is x += y (in_place.h).
void add_(const Tensor& x, const Tensor& y, double alpha = 1.0);
void add_(Tensor&& x, const Tensor& y, double alpha = 1.0);
void mul_(const Tensor& x, double factor);
void mul_(Tensor&& x, double factor);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, b); }
inline Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(const Tensor& a, Scalar b) { return sub(a, b); }
Tensor operator-(Scalar a, const Tensor& b);
inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, b); }
inline Tensor operator*(Scalar a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(const Tensor& a, Scalar b) { return div(a, b); }
Tensor operator/(Scalar a, const Tensor& b);
inline Tensor operator-(const Tensor& a) { return neg(a); }

}  // namespace peal
