// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels by name, one file a few families beside this one; families.def says what each
// takes. A family that the CPU has none of is declared alone. Thread safety: all may run on several
// threads.
#pragma once

#include <peal/autograd/kernels/table.h>

namespace peal::cpu {

const Kernels& table();

// attention.cpp
bool attention_recomputes(const AttentionGeometry& geometry, DType dtype);

#define KERNEL(name, arguments, ...) bool name arguments;
#include <peal/autograd/kernels/families.def>
#undef KERNEL

}  // namespace peal::cpu
