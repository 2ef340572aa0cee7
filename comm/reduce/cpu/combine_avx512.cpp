// SPDX-License-Identifier: Apache-2.0
// Compiled with x86-64-v4: AVX-512 F, BW, CD, DQ, VL, and vectors of 512 bits.
#define PEAL_LEVEL avx512
#include <peal/comm/reduce/cpu/combine_body.h>
