// SPDX-License-Identifier: Apache-2.0
// Compiled with x86-64-v4: AVX-512.
#define PEAL_LEVEL avx512
#include <peal/autograd/kernels/cpu/columns_body.h>
