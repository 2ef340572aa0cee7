// SPDX-License-Identifier: Apache-2.0
// What the reader and the writer of safetensors (safetensors.h) both know of the format.
#pragma once

#include <peal/autograd/core/dtype.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

namespace peal::safetensors_format {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::uint64_t length_bytes = 8;
constexpr std::string_view no_digits = "00000000";  // of a checksum, while it is added up

struct TypeName {
  DType dtype;
  const char* name;
};
constexpr std::array type_names{
    TypeName{DType::f32, "F32"},   TypeName{DType::f64, "F64"}, TypeName{DType::f16, "F16"},
    TypeName{DType::bf16, "BF16"}, TypeName{DType::i32, "I32"}, TypeName{DType::i64, "I64"},
    TypeName{DType::u8, "U8"},     TypeName{DType::i8, "I8"},   TypeName{DType::boolean, "BOOL"}};

}  // namespace peal::safetensors_format
