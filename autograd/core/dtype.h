// SPDX-License-Identifier: Apache-2.0
// Element types. Low precision (f16, bf16) is storage: sums accumulate in f32.
// visit(dtype, f) calls f.template operator()<T>() with the C++ type. Thread safety: pure
// functions.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/autograd/core/half.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <utility>

namespace peal {

enum class DType : std::uint8_t { f32, f64, f16, bf16, i32, i64, u8, i8, boolean };

std::size_t size_of(DType dtype);       // bytes an element
std::string_view name_of(DType dtype);  // "f32", ..., "bool"
std::ostream& operator<<(std::ostream& out, DType dtype);
bool is_floating(DType dtype);
bool is_low_precision(DType dtype);  // f16, bf16
// What sums, statistics and losses of this type are computed in: f32 for low precision, else
// itself.
DType computed_in(DType dtype);

template <class T>
struct DTypeOf;
#define PEAL_DTYPE(type, value)                  \
  template <>                                    \
  struct DTypeOf<type> {                         \
    static constexpr DType dtype = DType::value; \
  }
PEAL_DTYPE(float, f32);
PEAL_DTYPE(double, f64);
PEAL_DTYPE(Half, f16);
PEAL_DTYPE(BFloat16, bf16);
PEAL_DTYPE(std::int32_t, i32);
PEAL_DTYPE(std::int64_t, i64);
PEAL_DTYPE(std::uint8_t, u8);
PEAL_DTYPE(std::int8_t, i8);
PEAL_DTYPE(bool, boolean);
#undef PEAL_DTYPE

template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::dtype;

// Calls f<T>() for the C++ type of dtype.
template <class F>
decltype(auto) visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f.template operator()<float>();
    case DType::f64:
      return f.template operator()<double>();
    case DType::f16:
      return f.template operator()<Half>();
    case DType::bf16:
      return f.template operator()<BFloat16>();
    case DType::i32:
      return f.template operator()<std::int32_t>();
    case DType::i64:
      return f.template operator()<std::int64_t>();
    case DType::u8:
      return f.template operator()<std::uint8_t>();
    case DType::i8:
      return f.template operator()<std::int8_t>();
    case DType::boolean:
      return f.template operator()<bool>();
  }
  fail("visit: no such dtype");
}

}  // namespace peal

template <>
struct fmt::formatter<peal::DType> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(peal::DType dtype, Context& context) const {
    return fmt::format_to(context.out(), "{}", peal::name_of(dtype));
  }
};
