// SPDX-License-Identifier: Apache-2.0
// Half (IEEE binary16) and BFloat16: storage types of two bytes. Arithmetic happens in float;
// conversions round to nearest, ties to even, keep infinities and quiet NaN. The same source serves
// host and device, which has instructions for it: they give the same bits, but of a NaN, which is
// 0x7fff. (In PTX, as cuda_fp16.h would be read by every source.)
#pragma once

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define PEAL_HOST_DEVICE __host__ __device__
#else
// Forced inline, because loops that use it are compiled with several instruction sets.
#define PEAL_HOST_DEVICE __attribute__((always_inline))
#endif

namespace peal {

struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  PEAL_HOST_DEVICE explicit BFloat16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<std::uint16_t>((word >> 16) | 0x40u);  // NaN stays NaN
    } else {
      bits = static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
    }
#endif
  }
  PEAL_HOST_DEVICE operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  PEAL_HOST_DEVICE explicit Half(float value) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000u;
    const std::uint32_t magnitude = word & 0x7fffffffu;
    std::uint32_t out;
    if (magnitude > 0x7f800000u) {
      out = 0x7e00u;
    } else if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity
      out = 0x7c00u;
    } else if (magnitude < 0x38800000u) {  // below 2^-14: let float addition do the rounding
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      out = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
    } else {
      out = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    }
    bits = static_cast<std::uint16_t>(sign | out);
#endif
  }
  PEAL_HOST_DEVICE operator float() const {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t exponent = (bits >> 10) & 0x1fu, fraction = bits & 0x3ffu;
    if (exponent == 0) {
      const float small = static_cast<float>(fraction) * 0x1p-24f;
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(small) | sign);
    }
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
#endif
  }
};

}  // namespace peal
