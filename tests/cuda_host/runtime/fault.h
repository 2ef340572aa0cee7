// SPDX-License-Identifier: Apache-2.0
// A fault on a simulated device's memory gets a name: who touched it, the host or which kernel.
// Thread safety: installed once.
#pragma once

namespace cuda_host {

void catch_faults();

// The kernel that runs, for the report; null between kernels.
void set_running(const void* kernel);

}  // namespace cuda_host
