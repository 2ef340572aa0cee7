// SPDX-License-Identifier: Apache-2.0
// The simulated devices. Thread safety: the current device is the thread's own.
#pragma once

namespace cuda_host {

int current_device();
// Devices with a context, a bit each: a thread's first call makes one on its current device, which
// is the first until the thread has said another. forget_contexts() is for tests.
unsigned contexts();
void touch_context();
void forget_contexts();

}  // namespace cuda_host
