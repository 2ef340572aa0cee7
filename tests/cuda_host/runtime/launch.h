// SPDX-License-Identifier: Apache-2.0
// How many launches each kernel has had, by the name that the linker knows. Thread safety: under
// queue.h's lock.
#pragma once

namespace cuda_host {

// Writes one line a kernel, "count name", to the file that CUDA_HOST_LAUNCHES names, if it is set.
void write_launches();

}  // namespace cuda_host
