// SPDX-License-Identifier: Apache-2.0
// All streams that there are: those made, the legacy one of each device, and each thread's own.
// Thread safety: under queue.h's lock.
#pragma once

#include "queue.h"

#include <memory>
#include <vector>

namespace cuda_host {

std::vector<std::unique_ptr<CUstream_st>>& streams();

}  // namespace cuda_host
