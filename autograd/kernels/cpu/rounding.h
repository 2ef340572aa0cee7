// SPDX-License-Identifier: Apache-2.0
// Rounding from f32 to bf16 by the CPU's instruction (AVX512_BF16, VCVTNEPS2BF16), to the same bits
// as without. Compiled for the CPUs that have it, and called on no others. Thread safety: pure.
#pragma once

#include <peal/autograd/core/half.h>

#include <cstdint>

namespace peal::cpu::avx512bf16 {

void round_to_bf16(BFloat16* out, const float* x, std::int64_t n);

}  // namespace peal::cpu::avx512bf16
