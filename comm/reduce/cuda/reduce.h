// SPDX-License-Identifier: Apache-2.0
// The kernels of the wire on CUDA devices: the same functions of an element as the CPU's
// (combine.h), in accesses of 16 bytes where memory is aligned to them. Thread safety: kernels of
// one thread are ordered on its current stream.
#pragma once

#include <peal/comm/reduce/table.h>

namespace peal::comm {

const WireKernels& cuda_wire_kernels();

}  // namespace peal::comm
