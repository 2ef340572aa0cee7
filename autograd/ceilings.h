// SPDX-License-Identifier: Apache-2.0
// What this machine can do at most, measured with the kernels that training uses: a square matrix
// product for arithmetic, x += a y over arrays larger than the caches for memory. Takes some tenths
// of a second, on the CPU with the calling thread's number of threads. Other work on the machine
// makes the figures lower, so the best of several goes is taken. Thread safety: reentrant.
#pragma once

#include <peal/autograd/core/device.h>

namespace peal {

struct Ceilings {
  double flops = 0;  // a second, f32 (TF32 on a device where the context allows it)
  double bytes = 0;  // a second
};

Ceilings measure_ceilings(Device device = {});

}  // namespace peal
