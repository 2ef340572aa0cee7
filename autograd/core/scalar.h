// SPDX-License-Identifier: Apache-2.0
// Scalar: a number beside a tensor, which keeps of which category it was written: bool, integer or
// floating. 2 and 2.0 are different operands (x * 2 of integers is integers, x * 2.0 is f32:
// ops/promotion.h), and no i64 is rounded on its way through double. Thread safety: a value.
#pragma once

#include <peal/autograd/core/dtype.h>

#include <cstdint>
#include <limits>
#include <type_traits>
#include <variant>

namespace peal {

class Scalar {
 public:
  // From any number of C++. Error for an unsigned one that i64 does not hold.
  template <class T>
  requires std::is_arithmetic_v<T> Scalar(T value)
      : value_(stored(value)) {}                                 // NOLINT: a conversion
  Scalar(Half value) : Scalar(static_cast<float>(value)) {}      // NOLINT
  Scalar(BFloat16 value) : Scalar(static_cast<float>(value)) {}  // NOLINT

  bool is_boolean() const { return std::holds_alternative<bool>(value_); }
  bool is_integral() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_floating() const { return std::holds_alternative<double>(value_); }
  // The type that it has among tensors: bool, i64 or f32.
  DType dtype() const {
    return is_boolean() ? DType::boolean : is_integral() ? DType::i64 : DType::f32;
  }
  // Converted, as static_cast does.
  template <class T>
  T to() const {
    return std::visit([](auto value) { return static_cast<T>(value); }, value_);
  }
  // Whether a double holds it exactly, as kernels take numbers.
  bool fits_double() const {
    const std::int64_t* whole = std::get_if<std::int64_t>(&value_);
    constexpr std::int64_t most = std::int64_t{1} << std::numeric_limits<double>::digits;
    return whole == nullptr || (*whole <= most && *whole >= -most);
  }

 private:
  using Value = std::variant<bool, std::int64_t, double>;

  template <class T>
  static Value stored(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value;
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<double>(value);
    } else {
      if constexpr (std::is_unsigned_v<T> && sizeof(T) == sizeof(std::int64_t)) {
        PEAL_CHECK(value <= static_cast<T>(std::numeric_limits<std::int64_t>::max()),
                   "scalar: ", value, " is past the largest i64");
      }
      return static_cast<std::int64_t>(value);
    }
  }

  Value value_;
};

}  // namespace peal

template <>
struct fmt::formatter<peal::Scalar> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(const peal::Scalar& scalar, Context& context) const {
    if (scalar.is_boolean()) return fmt::format_to(context.out(), "{}", scalar.to<bool>());
    if (scalar.is_integral()) return fmt::format_to(context.out(), "{}", scalar.to<std::int64_t>());
    return fmt::format_to(context.out(), "{}", scalar.to<double>());
  }
};
