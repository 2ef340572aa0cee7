// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/dtype.h>

namespace peal {

std::size_t size_of(DType dtype) {
  return visit(dtype, []<class T>() { return sizeof(T); });
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
    case DType::i8:
      return "i8";
    case DType::boolean:
      return "bool";
  }
  return "?";
}

bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

bool is_low_precision(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

DType computed_in(DType dtype) { return is_low_precision(dtype) ? DType::f32 : dtype; }

}  // namespace peal
