// SPDX-License-Identifier: Apache-2.0
// Indices in kernels: told to the host where they are out of range (core/cuda/fault.h), and kept
// from reading outside of an array. Thread safety: pure, but for the one word that is told.
#pragma once

#include <peal/autograd/core/cuda/fault.h>

#include <cuda_runtime.h>

namespace peal::cuda {

__device__ inline void report(Fault* fault, FaultKind kind, long long value, long long limit) {
  fault->value = value;
  fault->limit = limit;
  __threadfence_system();
  fault->kind = kind;
}

// An index that may be read with: `index` where it is in [0, limit), else 0.
__device__ inline long long inside(long long index, long long limit) {
  return index >= 0 && index < limit ? index : 0;
}

}  // namespace peal::cuda
