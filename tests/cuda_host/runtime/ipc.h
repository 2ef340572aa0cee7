// SPDX-License-Identifier: Apache-2.0
// Device memory between processes. Thread safety: under queue.h's lock.
#pragma once

namespace cuda_host {

// Before an allocation is freed: an error where another process still has it open.
void end_sharing(void* data);

}  // namespace cuda_host
