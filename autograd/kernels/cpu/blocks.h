// SPDX-License-Identifier: Apache-2.0
// Large f32 products, blocked for the caches (Goto and van de Geijn, "Anatomy of high-performance
// matrix multiplication", 2008): a group of the right operand's panels is copied to where the
// third-level cache holds it, the left operand is gone through in blocks of rows that the second
// one holds, and every row of a block meets a panel while both are there. The next panel, the next
// block and the result's lines are asked for meanwhile. Uses the calling thread's OpenMP threads;
// how many they are changes no bit of a result. Thread safety: as of the arrays.
#pragma once

#include <peal/autograd/kernels/cpu/gemm.h>

#include <cstdint>

namespace peal::cpu {

// Whether copies pay. Smaller products keep the cache they are in.
bool is_large(const Product& o);

// As multiply_in_panels. REQUIRES: a level with vectors of eight or more.
void multiply_in_blocks(float* out, const float* a, const float* b, const float* onto,
                        std::int64_t row_onto, const Product& o);

}  // namespace peal::cpu
