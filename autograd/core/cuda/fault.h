// SPDX-License-Identifier: Apache-2.0
// Faults: what kernels find wrong with values, told to the host without waiting for the device. A
// kernel writes the first fault into page-locked memory; the host looks there when it next waits
// for the device (a copy to the CPU, synchronize()) and throws an Error. So a class or an index out
// of range costs no wait where all is well, and a clear message where not. Kernels that use such a
// value must stay within their arrays all the same (kernels/cuda/inside.h). Thread safety: any
// thread and stream; of several faults one is told.
#pragma once

#include <peal/autograd/core/device.h>

namespace peal::cuda {

enum class FaultKind : int { none, index };

struct Fault {
  FaultKind kind;
  long long value, limit;  // an index, expected in [0, limit)
};

// Where kernels on the device write.
Fault* fault_of(Device device);
// Throws what was found, and forgets it. REQUIRES: the host has waited for the work in question.
void check_fault(Device device);

}  // namespace peal::cuda
