// SPDX-License-Identifier: Apache-2.0
// What a call of the runtime gives back. Thread safety: the last error is the thread's own.
#pragma once

#include <cuda_runtime_api.h>

namespace cuda_host {

// Notes it for cudaGetLastError, and gives it back; where work has failed, that error instead.
cudaError_t result(cudaError_t error);

}  // namespace cuda_host
