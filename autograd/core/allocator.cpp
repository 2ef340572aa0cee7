// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/out_of_memory.h>
#include <peal/autograd/core/requested_bytes.h>

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace peal {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20, small_page = 4096;

#if defined(__SANITIZE_ADDRESS__)  // GCC
#define PEAL_ADDRESS_SANITIZER 1
#elif defined(__has_feature)  // clang
#if __has_feature(address_sanitizer)
#define PEAL_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(PEAL_ADDRESS_SANITIZER)
constexpr bool caches = false;
#else
constexpr bool caches = true;
#endif

struct Cache {
  std::mutex mutex;
  std::unordered_map<std::size_t, std::vector<void*>> free;  // by size class, newest last
  std::map<std::size_t, std::vector<void*>> free_large;      // the same of huge_page and more
  std::unordered_map<void*, std::size_t> lent;               // to a smaller size class: their own
  AllocatorStatistics statistics;
  RequestedBytes requested;

  // A cached block for the size class, and its own size; of a large block up to twice of what is
  // asked for, as those of one step come in many sizes, few of which are in use at once.
  std::pair<void*, std::size_t> take(std::size_t size) {
    if (size < huge_page) {
      const auto found = free.find(size);
      return found == free.end() || found->second.empty() ? std::pair{nullptr, size}
                                                          : std::pair{newest(found->second), size};
    }
    const auto found = free_large.lower_bound(size);
    if (found == free_large.end() || found->first > 2 * size) return {nullptr, size};
    const std::size_t own = found->first;
    void* data = newest(found->second);
    if (found->second.empty()) free_large.erase(found);
    if (own != size) lent.emplace(data, own);
    return {data, own};
  }

  // What a block that was handed out for the size class is of itself.
  std::size_t own_size(void* data, std::size_t size) {
    if (size < huge_page || lent.empty()) return size;
    const auto node = lent.extract(data);
    return node.empty() ? size : node.mapped();
  }

  void put(void* data, std::size_t size) {
    (size < huge_page ? free[size] : free_large[size]).push_back(data);
    statistics.cached += size;
  }

 private:
  static void* newest(std::vector<void*>& list) {
    void* data = list.back();
    list.pop_back();
    return data;
  }
};

// Never destroyed: tensors with static storage may outlive any order of destruction.
Cache& cache() {
  static Cache& instance = *new Cache;
  return instance;
}

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

// Large blocks are mapped, and end where they end: malloc would round them up to whole huge pages,
// of which the last becomes resident with its first byte. Sanitizers see malloc's blocks alone.
bool is_mapped(std::size_t bytes) { return caches && bytes >= huge_page; }

void* map(std::size_t bytes) {
  const std::size_t room = bytes + huge_page;
  void* raw = ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(raw);
  const std::size_t before = round_up(begin, huge_page) - begin;
  std::byte* data = static_cast<std::byte*>(raw) + before;
  if (before > 0) ::munmap(raw, before);
  ::munmap(data + bytes, room - before - bytes);
  ::madvise(data, bytes, MADV_HUGEPAGE);  // advice only
  return data;
}

void* from_system(std::size_t bytes) {
  return is_mapped(bytes) ? map(round_up(bytes, small_page))
                          : std::aligned_alloc(64, round_up(bytes, 64));
}

void to_system(void* data, std::size_t bytes) {
  if (is_mapped(bytes)) {
    ::munmap(data, round_up(bytes, small_page));
  } else {
    std::free(data);
  }
}

// Gives every cached block back to the system.
void empty_cache(Cache& here) {
  std::lock_guard lock(here.mutex);
  const auto give_back = [](auto& lists) {
    for (const auto& [size, list] : lists) {
      for (void* data : list) to_system(data, size);
    }
    lists.clear();
  };
  give_back(here.free);
  give_back(here.free_large);
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
    const auto [data, own] = here.take(size);
    statistics.in_use += own;
    statistics.peak = std::max(statistics.peak, statistics.in_use);
    here.requested.now += bytes;
    here.requested.most = std::max(here.requested.most, here.requested.now);
    if (data != nullptr) {
      statistics.cached -= own;
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
    here.requested.now -= bytes;
  }
  throw OutOfMemory(concat("allocator: the system has no ", bytes, " bytes left on the CPU"));
}

void cpu_release(void* data, std::size_t bytes) {
  if (data == nullptr) return;
  std::size_t size = size_class(bytes);
  Cache& here = cache();
  {
    std::lock_guard lock(here.mutex);
    size = here.own_size(data, size);
    here.statistics.in_use -= size;
    here.requested.now -= bytes;
    if (caches) {
      here.put(data, size);
      return;
    }
  }
  to_system(data, size);
}

AllocatorStatistics cpu_allocator_statistics() {
  std::lock_guard lock(cache().mutex);
  return cache().statistics;
}

void cpu_reset_peak() {
  std::lock_guard lock(cache().mutex);
  cache().statistics.peak = cache().statistics.in_use;
  cache().requested.most = cache().requested.now;
}

RequestedBytes cpu_requested_bytes() {
  std::lock_guard lock(cache().mutex);
  return cache().requested;
}

void cpu_empty_cache() { empty_cache(cache()); }

}  // namespace peal
