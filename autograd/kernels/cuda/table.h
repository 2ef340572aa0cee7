// SPDX-License-Identifier: Apache-2.0
// CUDA's kernels by name, one file a few families beside this one; families.def says what each
// takes. All are queued and none waits. Thread safety: all may run on several threads.
#pragma once

#include <peal/autograd/kernels/table.h>

namespace peal::cuda {

// attention.cu
bool attention_recomputes(const AttentionGeometry& geometry, DType dtype);

#define KERNEL(name, arguments, ...) bool name arguments;
#include <peal/autograd/kernels/families.def>
#undef KERNEL

}  // namespace peal::cuda
