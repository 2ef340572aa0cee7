// SPDX-License-Identifier: Apache-2.0
// Requested bytes (PyTorch: requested_bytes of memory_stats()): what is asked of the CPU's
// allocator, to the byte. Its own statistics (allocator.h) count blocks, which are a quarter larger
// at most, or twice where a cached one serves. For who compares memory with a formula.
// Thread safety: may be called from any thread.
#pragma once

#include <cstddef>

namespace peal {

struct RequestedBytes {
  std::size_t now = 0;
  std::size_t most = 0;  // at once, since the start or the last cpu_reset_peak()
};
RequestedBytes cpu_requested_bytes();

}  // namespace peal
