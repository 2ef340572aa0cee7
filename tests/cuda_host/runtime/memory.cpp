// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include "capture.h"
#include "device.h"
#include "error.h"
#include "fault.h"
#include "ipc.h"
#include "queue.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <set>

namespace cuda_host {
namespace {

constexpr std::size_t arena_bytes = std::size_t{4} << 30, granule = 256, guard_bytes = 256;
constexpr std::size_t page = 4096, huge_page = std::size_t{2} << 20;
constexpr unsigned char guard_value = 0xa5, poison = 0xff;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

struct Arena {
  unsigned char* base = nullptr;
  std::size_t used = 0;  // bytes from the base on that were ever handed out, whole huge pages
  std::size_t limit = std::size_t{2} << 30, in_use = 0;
  std::map<std::size_t, std::size_t> live{}, free{};  // offset -> bytes; free ones with their guard
  std::set<std::size_t> foreign{};                    // of the live ones: other processes'
};

struct Memory {
  std::array<Arena, devices> arenas;
  std::array<unsigned, devices> reach{};
  std::map<const char*, std::size_t> pinned{};  // those allocated and those registered
  unsigned open = 0;
  Memory() {
    for (int d = 0; d < devices; ++d) {
      Arena& arena = arenas[static_cast<std::size_t>(d)];
      void* base = ::mmap(nullptr, arena_bytes + huge_page, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (base == MAP_FAILED) throw std::bad_alloc();
      arena.base = reinterpret_cast<unsigned char*>(
          round_up(reinterpret_cast<std::uintptr_t>(base), huge_page));
      ::madvise(arena.base, arena_bytes, MADV_HUGEPAGE);  // opened and closed a page at a time
      arena.free[0] = arena_bytes;
      reach[static_cast<std::size_t>(d)] = 1u << d;
    }
    catch_faults();
  }
};

Memory& memory() {
  static Memory& instance = *new Memory;
  return instance;
}

Arena& arena_of(int device) { return memory().arenas[static_cast<std::size_t>(device)]; }

std::size_t with_guard(std::size_t bytes) {
  const std::size_t whole = round_up(bytes, granule) + guard_bytes;
  return bytes < least_shared ? whole : round_up(whole, page);
}

// A hole for so many bytes, out of the free ones; their end where there is none.
std::size_t take_hole(Arena& arena, std::size_t bytes) {
  const std::size_t whole = with_guard(bytes), to = bytes < least_shared ? granule : page;
  for (auto hole = arena.free.begin(); hole != arena.free.end(); ++hole) {
    const auto [first, room] = *hole;
    const std::size_t offset = round_up(first, to), end = first + room;
    if (offset + whole > end) continue;
    arena.free.erase(hole);
    if (offset > first) arena.free[first] = offset - first;
    if (end > offset + whole) arena.free[offset + whole] = end - offset - whole;
    arena.live[offset] = bytes;
    return offset;
  }
  return arena_bytes;
}

// The memory's range may be opened and closed from now on.
void use_until(Arena& arena, std::size_t end) {
  const unsigned open = memory().open;
  open_memory(0);
  arena.used = std::max(arena.used, round_up(end, huge_page));
  open_memory(open);
}

// One hole with its neighbours.
void add_hole(Arena& arena, std::size_t offset, std::size_t whole) {
  auto next = arena.free.lower_bound(offset);
  if (next != arena.free.end() && next->first == offset + whole) {
    whole += next->second;
    next = arena.free.erase(next);
  }
  if (next != arena.free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += whole;
      return;
    }
  }
  arena.free[offset] = whole;
}

// The allocation that holds it: its offset and bytes; bytes 0 where none does.
std::pair<std::size_t, std::size_t> find(const Arena& arena, std::size_t offset) {
  auto at = arena.live.upper_bound(offset);
  if (at == arena.live.begin()) return {0, 0};
  --at;
  if (offset - at->first >= at->second) return {0, 0};
  return *at;
}

bool guards_hold(const Arena& arena, std::size_t offset, std::size_t bytes) {
  const unsigned char* first = arena.base + offset;
  return std::all_of(first + bytes, first + with_guard(bytes),
                     [](unsigned char byte) { return byte == guard_value; });
}

void report_overrun(int device, std::size_t bytes) {
  set_failure(cudaErrorIllegalAddress, "something wrote behind the end of an allocation of " +
                                           std::to_string(bytes) + " bytes on device " +
                                           std::to_string(device));
}

}  // namespace

void open_memory(unsigned wanted) {
  for (int d = 0; d < devices; ++d) {
    const unsigned bit = 1u << d;
    if ((memory().open & bit) == (wanted & bit)) continue;
    const Arena& arena = arena_of(d);
    if (arena.used > 0) {
      ::mprotect(arena.base, arena.used, (wanted & bit) != 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
    }
  }
  memory().open = wanted;
}

Access::Access(unsigned wanted) : before_(memory().open) { open_memory(before_ | wanted); }
Access::~Access() { open_memory(before_); }

int device_of(const void* data) {
  for (int d = 0; d < devices; ++d) {
    const auto* at = static_cast<const unsigned char*>(data);
    if (at >= arena_of(d).base && at < arena_of(d).base + arena_bytes) return d;
  }
  return -1;
}

bool is_pinned(const void* data) {
  const auto guard = lock();
  const auto* at = static_cast<const char*>(data);
  auto next = memory().pinned.upper_bound(at);
  return next != memory().pinned.begin() && (--next, at < next->first + next->second);
}

std::size_t room_at(const void* data) {
  const auto guard = lock();
  const int device = device_of(data);
  if (device < 0) return 0;
  const Arena& arena = arena_of(device);
  const auto at = static_cast<std::size_t>(static_cast<const unsigned char*>(data) - arena.base);
  const auto [offset, bytes] = find(arena, at);
  return offset + bytes - std::min(at, offset + bytes);
}

void check_guards() {
  const auto guard = lock();
  for (int d = 0; d < devices; ++d) {
    if (arena_of(d).live.empty()) continue;
    const Access access(1u << d);
    for (const auto& [offset, bytes] : arena_of(d).live) {
      if (arena_of(d).foreign.contains(offset)) continue;
      if (!guards_hold(arena_of(d), offset, bytes)) report_overrun(d, bytes);
    }
  }
}

void limit_memory(int device, std::size_t bytes) {
  const auto guard = lock();
  arena_of(device).limit = bytes;
}

unsigned reach_of(int device) { return memory().reach[static_cast<std::size_t>(device)]; }

bool set_peer(int device, int peer, bool can) {
  const auto guard = lock();
  unsigned& reach = memory().reach[static_cast<std::size_t>(device)];
  if (((reach >> peer & 1) != 0) == can) return false;
  reach ^= 1u << peer;
  return true;
}

void* take(int device, std::size_t bytes) {
  Arena& arena = arena_of(device);
  const std::size_t whole = with_guard(bytes);
  if (arena.in_use + whole > arena.limit) return nullptr;
  const std::size_t offset = take_hole(arena, bytes);
  if (offset == arena_bytes) return nullptr;
  arena.in_use += whole;
  use_until(arena, offset + whole);
  const Access access(1u << device);
  std::memset(arena.base + offset, poison, bytes);
  std::memset(arena.base + offset + bytes, guard_value, whole - bytes);
  return arena.base + offset;
}

cudaError_t give_back(void* data) {
  const int device = device_of(data);
  if (device < 0) return cudaErrorInvalidValue;
  Arena& arena = arena_of(device);
  const auto at = static_cast<std::size_t>(static_cast<unsigned char*>(data) - arena.base);
  const auto found = arena.live.find(at);
  if (found == arena.live.end() || arena.foreign.contains(at)) return cudaErrorInvalidValue;
  const std::size_t bytes = found->second, whole = with_guard(bytes);
  const Access access(1u << device);
  if (!guards_hold(arena, at, bytes)) report_overrun(device, bytes);
  end_sharing(data);
  std::memset(arena.base + at, poison, whole);
  arena.live.erase(found);
  arena.in_use -= whole;
  add_hole(arena, at, whole);
  return cudaSuccess;
}

Allocation allocation_at(const void* data) {
  const int device = device_of(data);
  if (device < 0) return {};
  const Arena& arena = arena_of(device);
  const auto at = static_cast<std::size_t>(static_cast<const unsigned char*>(data) - arena.base);
  const auto [offset, bytes] = find(arena, at);
  if (bytes == 0 || arena.foreign.contains(offset)) return {};
  return {device, arena.base + offset, bytes, bytes < least_shared ? 0 : with_guard(bytes)};
}

void* take_place(int device, std::size_t bytes) {
  Arena& arena = arena_of(device);
  const std::size_t offset = take_hole(arena, bytes);
  if (offset == arena_bytes) return nullptr;
  arena.foreign.insert(offset);
  use_until(arena, offset + with_guard(bytes));
  return arena.base + offset;
}

void give_place_back(void* place) {
  Arena& arena = arena_of(device_of(place));
  const auto at = static_cast<std::size_t>(static_cast<unsigned char*>(place) - arena.base);
  const std::size_t whole = with_guard(arena.live.at(at));
  map_pages(place, whole, -1);
  arena.live.erase(at);
  arena.foreign.erase(at);
  add_hole(arena, at, whole);
}

void map_pages(void* base, std::size_t pages, int file) {
  const int device = device_of(base);
  const bool open = (memory().open >> device & 1) != 0;
  const int flags = MAP_FIXED | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  if (::mmap(base, pages, open ? PROT_READ | PROT_WRITE : PROT_NONE, flags, file, 0) ==
      MAP_FAILED) {
    throw std::bad_alloc();
  }
  if (file >= 0) return;
  const Access access(1u << device);
  std::memset(base, poison, pages);
}

}  // namespace cuda_host

using namespace cuda_host;

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  const auto guard = lock();
  if (data == nullptr) return result(cudaErrorInvalidValue);
  *data = nullptr;
  if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0) return result(cudaSuccess);
  *data = take(current_device(), bytes);
  return result(*data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

// As CUDA's, it waits for all work on the device.
cudaError_t cudaFree(void* data) {
  const auto guard = lock();
  if (data == nullptr) return result(cudaSuccess);
  if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
  const int device = device_of(data);
  if (device < 0) return result(cudaErrorInvalidValue);
  finish_device(device);
  return result(give_back(data));
}

cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return result(cudaErrorStreamCaptureUnsupported);
  *data = bytes == 0 ? nullptr : take(stream->device, bytes);
  return result(*data == nullptr && bytes != 0 ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) return result(cudaErrorStreamCaptureUnsupported);
  if (data == nullptr) return result(cudaSuccess);
  if (room_at(data) == 0) return result(cudaErrorInvalidValue);
  return result(enqueue(stream, {.run = [=] { static_cast<void>(give_back(data)); }}));
}

cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return cudaHostAlloc(data, bytes, cudaHostAllocDefault);
}

cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  const auto guard = lock();
  if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
  touch_context();
  *data = bytes == 0 ? nullptr : std::aligned_alloc(page, round_up(bytes, page));
  if (*data == nullptr) return result(bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
  std::memset(*data, poison, bytes);
  memory().pinned[static_cast<const char*>(*data)] = bytes;
  return result(cudaSuccess);
}

// As CUDA's, it waits for all work.
cudaError_t cudaFreeHost(void* data) {
  const auto guard = lock();
  if (data == nullptr) return result(cudaSuccess);
  if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
  if (!memory().pinned.contains(static_cast<const char*>(data)))
    return result(cudaErrorInvalidValue);
  for (int d = 0; d < devices; ++d) finish_device(d);
  memory().pinned.erase(static_cast<const char*>(data));
  std::free(data);
  return result(cudaSuccess);
}

cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned) {
  const auto guard = lock();
  if (data == nullptr || bytes == 0) return result(cudaErrorInvalidValue);
  if (is_pinned(data)) return result(cudaErrorHostMemoryAlreadyRegistered);
  memory().pinned[static_cast<const char*>(data)] = bytes;
  return result(cudaSuccess);
}

cudaError_t cudaHostUnregister(void* data) {
  const auto guard = lock();
  if (memory().pinned.erase(static_cast<const char*>(data)) == 0) {
    return result(cudaErrorHostMemoryNotRegistered);
  }
  return result(cudaSuccess);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const auto guard = lock();
  const Arena& arena = arena_of(current_device());
  *total = arena.limit;
  *free = arena.limit - std::min(arena.limit, arena.in_use);
  return result(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  const auto guard = lock();
  *attributes = {};
  void* at = const_cast<void*>(data);
  const int device = device_of(data);
  if (device >= 0) {
    if (room_at(data) == 0) return result(cudaErrorInvalidValue);
    *attributes = {cudaMemoryTypeDevice, device, at, nullptr};
  } else if (is_pinned(data)) {
    *attributes = {cudaMemoryTypeHost, current_device(), at, at};
  } else {
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, at};
  }
  return result(cudaSuccess);
}
