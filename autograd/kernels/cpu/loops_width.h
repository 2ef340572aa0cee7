// SPDX-License-Identifier: Apache-2.0
// Between f32 and the two-byte types. f16 has instructions since AVX2's time (F16C); bf16 is the
// upper half of an f32, which the compiler makes vectors of, and is rounded by an instruction where
// the CPU has one (AVX512_BF16). Part of loops_body.h, and under its rule about symbols.
#pragma once

#include <peal/autograd/core/half.h>
#include <peal/autograd/kernels/cpu/loops.h>
#include <peal/autograd/kernels/functors.h>

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

// Elements that are computed in f32 and rounded together: few enough to stay in registers, or in
// the first lines of a cache.
constexpr int strip = 64;

// n <= strip. A fixed n makes straight code.
PEAL_ELEMENT void round_strip(BFloat16* __restrict out, const float* __restrict x, int n) {
  int i = 0;
#if defined(__AVX512BF16__)
  constexpr int lanes_of_f32 = 16, denormal = 0x20;
  __mmask16 tiny = 0;
  for (int l = 0; l + lanes_of_f32 <= n; l += lanes_of_f32) {
    tiny |= _mm512_fpclass_ps_mask(_mm512_loadu_ps(x + l), denormal);
  }
  if (tiny == 0) {  // the instruction takes those for 0
    for (; i + lanes_of_f32 <= n; i += lanes_of_f32) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                          (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i)));
    }
  }
#endif
  for (; i < n; ++i) out[i].bits = BFloat16(x[i]).bits;
}

// out[i] = f(i) of n elements. f may read what out had there, so out may be an operand.
template <class F>
PEAL_ELEMENT void in_strips(BFloat16* out, std::int64_t n, F f) {
  std::int64_t i = 0;
  float values[strip];
  for (; n - i >= strip; i += strip) {
#pragma omp simd
    for (int l = 0; l < strip; ++l) values[l] = f(i + l);
    round_strip(out + i, values, strip);
  }
  const int left = static_cast<int>(n - i);
#pragma omp simd
  for (int l = 0; l < left; ++l) values[l] = f(i + l);
  round_strip(out + i, values, left);
}
// The same of f32 and f64, where they lie.
template <class T, class F>
PEAL_ELEMENT void in_strips(T* out, std::int64_t n, F f) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = f(i);
}

template <class T>
void narrow(T* __restrict out, const float* __restrict x, std::int64_t n) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return in_strips(out, n, [=](std::int64_t i) { return x[i]; });
  }
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
