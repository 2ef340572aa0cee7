// SPDX-License-Identifier: Apache-2.0
// Compiled for any processor of the family.
#define PEAL_LEVEL baseline
#include <peal/autograd/kernels/cpu/columns_body.h>
