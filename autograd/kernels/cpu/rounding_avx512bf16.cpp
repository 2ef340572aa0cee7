// SPDX-License-Identifier: Apache-2.0
// Compiled with x86-64-v4 and AVX512_BF16.
#include <peal/autograd/kernels/cpu/rounding.h>

#include <immintrin.h>

namespace peal::cpu::avx512bf16 {

void round_to_bf16(BFloat16* out, const float* x, std::int64_t n) {
  constexpr std::int64_t lanes = 16;
  constexpr int denormal = 0x20;
  std::int64_t i = 0;
  for (; n - i >= lanes; i += lanes) {
    const __m512 value = _mm512_loadu_ps(x + i);
    // The instruction takes these for 0.
    if (_mm512_fpclass_ps_mask(value, denormal) != 0) {
      for (std::int64_t l = i; l < i + lanes; ++l) out[l] = BFloat16(x[l]);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                          reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
    }
  }
  for (; i < n; ++i) out[i] = BFloat16(x[i]);
}

}  // namespace peal::cpu::avx512bf16
