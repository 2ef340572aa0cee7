// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/error.h>

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace peal {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

#if defined(__has_feature)  // clang's way to say what GCC says with a macro
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
constexpr bool caches = false;
#else
constexpr bool caches = true;
#endif

struct Cache {
  std::mutex mutex;
  std::unordered_map<std::size_t, std::vector<void*>> free;  // by size class, newest last
  AllocatorStatistics statistics;
};

// Never destroyed: tensors with static storage may outlive any order of destruction.
Cache& cache() {
  static Cache& instance = *new Cache;
  return instance;
}

void* from_system(std::size_t bytes) {
  const std::size_t alignment = bytes >= huge_page ? huge_page : 64;
  void* data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data != nullptr && bytes >= huge_page) madvise(data, bytes, MADV_HUGEPAGE);  // advice only
  return data;
}

// Gives every cached block back to the system.
void empty_cache(Cache& here) {
  std::lock_guard lock(here.mutex);
  for (auto& [size, list] : here.free) {
    for (void* data : list) std::free(data);
    list.clear();
  }
  here.statistics.cached = 0;
}

}  // namespace

std::size_t size_class(std::size_t bytes) {
  if (bytes <= 64) return 64;
  const std::size_t step = std::max<std::size_t>(std::bit_floor(bytes - 1) / 4, 64);
  return (bytes + step - 1) / step * step;
}

void* cpu_allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::size_t size = size_class(bytes);
  Cache& here = cache();
  {
    std::lock_guard lock(here.mutex);
    auto& statistics = here.statistics;
    statistics.in_use += size;
    statistics.peak = std::max(statistics.peak, statistics.in_use);
    auto& list = here.free[size];
    if (!list.empty()) {
      void* data = list.back();
      list.pop_back();
      statistics.cached -= size;
      return data;
    }
    ++statistics.from_system;
  }
  if (void* data = from_system(size)) return data;
  empty_cache(here);  // what other sizes hold may be what is missing
  if (void* data = from_system(size)) return data;
  {
    std::lock_guard lock(here.mutex);
    here.statistics.in_use -= size;
  }
  fail(concat("allocator: the system has no ", bytes, " bytes left on the CPU"));
}

void cpu_release(void* data, std::size_t bytes) {
  if (data == nullptr) return;
  const std::size_t size = size_class(bytes);
  Cache& here = cache();
  {
    std::lock_guard lock(here.mutex);
    here.statistics.in_use -= size;
    if (caches) {
      here.statistics.cached += size;
      here.free[size].push_back(data);
      return;
    }
  }
  std::free(data);
}

AllocatorStatistics cpu_allocator_statistics() {
  std::lock_guard lock(cache().mutex);
  return cache().statistics;
}

}  // namespace peal
