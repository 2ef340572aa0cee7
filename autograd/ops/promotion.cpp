// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/promotion.h>

namespace peal {
namespace {

int category_of(DType dtype) { return is_floating(dtype) ? 2 : dtype == DType::boolean ? 0 : 1; }

// `lower` is of operands that count only by their category.
DType over(DType higher, DType lower) {
  return category_of(lower) > category_of(higher) ? promote_types(higher, lower) : higher;
}

}  // namespace

bool can_cast(DType from, DType to) { return category_of(from) <= category_of(to); }

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  const int of_a = category_of(a), of_b = category_of(b);
  if (of_a != of_b) return of_a > of_b ? a : b;
  const auto either = [&](DType dtype) { return a == dtype || b == dtype; };
  if (of_a == 2) return either(DType::f64) ? DType::f64 : DType::f32;
  return either(DType::i64) ? DType::i64 : DType::i32;
}

DType result_type(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return a.dtype();
  if ((a.dim() == 0) == (b.dim() == 0)) return promote_types(a.dtype(), b.dtype());
  return a.dim() == 0 ? over(b.dtype(), a.dtype()) : over(a.dtype(), b.dtype());
}

DType result_type(const Tensor& a, Scalar b) { return over(a.dtype(), b.dtype()); }
DType result_type(Scalar a, Scalar b) { return promote_types(a.dtype(), b.dtype()); }

}  // namespace peal
