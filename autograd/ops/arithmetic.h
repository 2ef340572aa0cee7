// SPDX-License-Identifier: Apache-2.0
// Arithmetic on tensors, element by element, with NumPy's broadcasting (sizes of 1 stretch, missing
// leading dimensions are 1). Both operands have the same dtype; Error names op, shapes and types
// otherwise. Division is true division: integers and masks (bool) become f32 first. Of masks the
// sum is "or" and the product "and" (choose.h). The gradient of a stretched operand is summed over
// what it was stretched along. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, double b);
Tensor mul(const Tensor& a, double b);
Tensor div(const Tensor& a, double b);
Tensor neg(const Tensor& a);

// x += alpha * y, x *= factor: in place, not recorded, no broadcasting; they count a version of x.
// Error for a temporary that nobody else holds (core/in_place.h).
void add_(const Tensor& x, const Tensor& y, double alpha = 1.0);
void add_(Tensor&& x, const Tensor& y, double alpha = 1.0);
void mul_(const Tensor& x, double factor);
void mul_(Tensor&& x, double factor);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, double b) { return add(a, b); }
inline Tensor operator+(double a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(const Tensor& a, double b) { return add(a, -b); }
inline Tensor operator-(double a, const Tensor& b) { return add(neg(b), a); }
inline Tensor operator*(const Tensor& a, double b) { return mul(a, b); }
inline Tensor operator*(double a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(const Tensor& a, double b) { return div(a, b); }
Tensor operator/(double a, const Tensor& b);
inline Tensor operator-(const Tensor& a) { return neg(a); }

}  // namespace peal
