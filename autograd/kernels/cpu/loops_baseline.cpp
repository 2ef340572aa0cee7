// SPDX-License-Identifier: Apache-2.0
// Compiled for any processor of the family; has the integers too.
#define PEAL_ALL_DTYPES
#define PEAL_LEVEL baseline
#include <peal/autograd/kernels/cpu/loops_body.h>
