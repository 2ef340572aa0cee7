// SPDX-License-Identifier: Apache-2.0
// Between f32 and the two-byte types. f16 has instructions since AVX2's time (F16C); bf16 is the
// upper half of an f32, which the compiler makes vectors of. Part of loops_body.h, and under its
// rule about symbols.
#pragma once

#include <peal/autograd/core/half.h>
#include <peal/autograd/kernels/cpu/loops.h>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace peal::cpu::PEAL_LEVEL {
namespace {

template <class T>
void widen(float* __restrict out, const T* __restrict x, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, Half>) {
    for (; i + 8 <= n; i += 8) {
      const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(bits));
    }
  }
#endif
  for (; i < n; ++i) out[i] = static_cast<float>(x[i]);
}

template <class T>
void narrow(T* __restrict out, const float* __restrict x, std::int64_t n) {
  std::int64_t i = 0;
#if defined(__F16C__)
  if constexpr (std::is_same_v<T, Half>) {
    for (; i + 8 <= n; i += 8) {
      const __m128i bits = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), bits);
    }
  }
#endif
  for (; i < n; ++i) out[i] = T(x[i]);
}

template <class T>
constexpr WidthLoops<T> width_loops_here = {.widen = widen<T>, .narrow = narrow<T>};

}  // namespace
}  // namespace peal::cpu::PEAL_LEVEL
