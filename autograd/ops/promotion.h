// SPDX-License-Identifier: Apache-2.0
// Type promotion: in what type an op computes whose operands have several, by PyTorch's rule.
//
// There are three categories: bool, integers, floating types, in this order. An operand counts
// fully if it has dimensions; a 0-dim tensor counts only where its category is higher than theirs,
// and a number of C++ (Scalar) only where its category is higher than that of all tensors. Of the
// operands that count, the result is the type that holds them: of one category the wider (f32 for
// f16 with bf16, i32 for u8 with i8, for which PyTorch has i16), of two the higher's. So
//
//   i64 [3] + 2    i64      i64 [3] + 2.0        f32      bool [3] + 1       i64
//   f16 [3] + 2.0  f16      f32 [3] + f64 0-dim  f32      i64 [3] + f16 [3]  f16
//
// The casts are recorded. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// The type that holds both.
DType promote_types(DType a, DType b);
// Whether what is computed in one type may be written into another in place: not what is floating
// into integers, nor numbers into bool.
bool can_cast(DType from, DType to);
// What an op over these operands computes in.
DType result_type(const Tensor& a, const Tensor& b);
DType result_type(const Tensor& a, Scalar b);
DType result_type(Scalar a, Scalar b);

}  // namespace peal
