// SPDX-License-Identifier: Apache-2.0
// From a run-time dtype to a template argument, for the dtypes that a kernel serves on any device;
// false for others. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/dtype.h>
#include <peal/autograd/kernels/functors.h>

namespace peal {

// f32, f64: what training computes in.
template <class F>
bool with_real(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      f.template operator()<float>();
      return true;
    case DType::f64:
      f.template operator()<double>();
      return true;
    default:
      return false;
  }
}

// The reals and the two-byte storage types.
template <class F>
bool with_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16:
      f.template operator()<Half>();
      return true;
    case DType::bf16:
      f.template operator()<BFloat16>();
      return true;
    default:
      return with_real(dtype, f);
  }
}

// Integers.
template <class F>
bool with_integer(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i32:
      f.template operator()<std::int32_t>();
      return true;
    case DType::i64:
      f.template operator()<std::int64_t>();
      return true;
    case DType::u8:
      f.template operator()<std::uint8_t>();
      return true;
    case DType::i8:
      f.template operator()<std::int8_t>();
      return true;
    default:
      return false;
  }
}

// Every type but bool.
template <class F>
bool with_number(DType dtype, F&& f) {
  return with_integer(dtype, f) || with_floating(dtype, f);
}

}  // namespace peal
