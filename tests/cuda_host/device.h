// SPDX-License-Identifier: Apache-2.0
// The simulated devices. Thread safety: the current device is the thread's own.
#pragma once

namespace cuda_host {

int current_device();

}  // namespace cuda_host
