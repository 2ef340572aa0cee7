// SPDX-License-Identifier: Apache-2.0
// The CPU's caching allocator. A fresh 9 MB block costs milliseconds in page faults, a reused one
// none, so blocks go back to a free list of their size class and are used again, newest first (warm
// in the caches). Blocks of 2 MiB and more are aligned to huge pages and ask for them
// (MADV_HUGEPAGE); where none of their class is free, one of up to twice the size serves.
// Everything is aligned to 64 bytes. Under AddressSanitizer nothing is cached, so
// that it sees misuse. Thread safety: all functions may be called from any thread.
#pragma once

#include <cstddef>

namespace peal {

// REQUIRES nothing; bytes == 0 gives null. Throws OutOfMemory when the system has none left.
void* cpu_allocate(std::size_t bytes);
// REQUIRES: data came from cpu_allocate(bytes).
void cpu_release(void* data, std::size_t bytes);

struct AllocatorStatistics {
  std::size_t in_use = 0;       // bytes handed out now (of the blocks, so rounded up)
  std::size_t peak = 0;         // the most that in_use has been
  std::size_t cached = 0;       // bytes held in free lists
  std::size_t from_system = 0;  // how many blocks were asked of the system
};
AllocatorStatistics cpu_allocator_statistics();
// The peak becomes what is in use now.
void cpu_reset_peak();
// Gives cached blocks back to the system.
void cpu_empty_cache();

// The size class of a request: powers of two with four steps between, so at most 25 % is lost.
std::size_t size_class(std::size_t bytes);

}  // namespace peal
