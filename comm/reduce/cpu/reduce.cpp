// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/reduce/cpu/combine.h>
#include <peal/comm/reduce/cpu/reduce.h>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace peal::comm {
namespace {

template <class T>
concept Wide = !std::same_as<T, Half> && !std::same_as<T, BFloat16>;

}  // namespace

void reduce_cpu(DType dtype, ReduceOp op, void* dst, const void* src, std::int64_t count) {
  PEAL_CHECK(dtype != DType::f16 && dtype != DType::bf16, "reduce: ", dtype,
             " is reduced as f32; widen it first");
  std::byte* const target = static_cast<std::byte*>(dst);
  const std::byte* const sources[] = {target, static_cast<const std::byte*>(src)};
  combine(dtype, op, {&target, 1}, sources, count, false);
}

void scale_cpu(DType dtype, void* data, double factor, std::int64_t count) {
  visit(dtype, [&]<class T>() {
    if constexpr (Wide<T> && !std::same_as<T, bool>) {
      T* element = static_cast<T*>(data);
      const auto f =
          static_cast<std::conditional_t<std::is_same_v<T, float>, float, double>>(factor);
      for (std::int64_t i = 0; i < count; ++i) {
        element[i] = static_cast<T>(static_cast<decltype(f)>(element[i]) * f);
      }
    } else {
      fail(concat("scale: not for ", dtype));
    }
  });
}

void divide_cpu(DType dtype, void* data, std::int64_t divisor, std::int64_t count) {
  visit(dtype, [&]<class T>() {
    if constexpr (std::is_floating_point_v<T>) {
      T* element = static_cast<T*>(data);
      if (std::has_single_bit(static_cast<std::uint64_t>(divisor))) {  // the same bits, faster
        return scale_cpu(dtype, data, 1.0 / static_cast<double>(divisor), count);
      }
      for (std::int64_t i = 0; i < count; ++i) element[i] /= static_cast<T>(divisor);
    } else if constexpr (std::is_integral_v<T> && !std::same_as<T, bool>) {
      auto* const bytes = static_cast<std::byte*>(data);  // which combine() does not align
      for (std::int64_t i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
        value = static_cast<T>(static_cast<std::int64_t>(value) / divisor);
        std::memcpy(bytes + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
      }
    } else {
      fail(concat("divide: not for ", dtype));
    }
  });
}

void widen_cpu(DType dtype, float* dst, const void* src, std::int64_t count) {
  if (dtype == DType::f16) {
    for (std::int64_t i = 0; i < count; ++i) dst[i] = static_cast<const Half*>(src)[i];
  } else {
    for (std::int64_t i = 0; i < count; ++i) dst[i] = static_cast<const BFloat16*>(src)[i];
  }
}

void narrow_cpu(DType dtype, void* dst, const float* src, std::int64_t count) {
  if (dtype == DType::f16) {
    for (std::int64_t i = 0; i < count; ++i) static_cast<Half*>(dst)[i] = Half(src[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) static_cast<BFloat16*>(dst)[i] = BFloat16(src[i]);
  }
}

}  // namespace peal::comm
