// SPDX-License-Identifier: Apache-2.0
// CPU dispatch: which vector instructions the kernels of the CPU use. Hot loops are compiled once
// for each vector level of the processor family (baseline; AVX2 with FMA and F16C, x86-64-v3;
// AVX-512, x86-64-v4), and the widest that this CPU has is chosen at run time. Other families have
// the baseline alone. What is compiled so is listed by peal_vector_levels() in CMake.
// Thread safety: pure.
#pragma once

#include <cstdint>

namespace peal::cpu {

enum class Level : std::uint8_t { baseline, avx2, avx512 };
Level best_level();  // the widest this CPU and this build have
// best_level(), or what PEAL_CPU_LEVEL (baseline | avx2 | avx512) asks for if that is narrower.
// Error where it says something else.
Level current_level();

}  // namespace peal::cpu
