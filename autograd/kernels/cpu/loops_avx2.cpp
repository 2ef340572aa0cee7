// SPDX-License-Identifier: Apache-2.0
// Compiled with x86-64-v3: AVX2, FMA, BMI2.
#define PEAL_LEVEL avx2
#include <peal/autograd/kernels/cpu/loops_body.h>
