// SPDX-License-Identifier: Apache-2.0
// The memory of the simulated devices: an arena each, which nobody can touch except while work runs
// that says so (a fault names the culprit). What is allocated or freed is filled with 0xff: NaN as
// a number, -1 as an index. Behind each allocation are guard bytes, which are looked at when it is
// freed and at every synchronise. Thread safety: under queue.h's lock.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace cuda_host {

inline constexpr int devices = 2;

// The memory of these devices alone can be touched from now on.
void open_memory(unsigned devices);

// While one lives, the memory of these devices (a bit each) can be touched too.
class Access {
 public:
  explicit Access(unsigned devices);
  ~Access();
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

 private:
  unsigned before_;
};

// -1: not a device's memory.
int device_of(const void* data);
bool is_pinned(const void* data);
// The bytes from here to the end of the allocation that holds it; 0 where none does.
std::size_t room_at(const void* data);
// Sets the failure where guard bytes have been overwritten.
void check_guards();
// At most this many bytes of a device's memory from now on.
void limit_memory(int device, std::size_t bytes);
// What a kernel on a device may touch: its own, and its peers'.
unsigned reach_of(int device);
// Peers: false where it was so before.
bool set_peer(int device, int peer, bool can);

// An allocation's memory, null where there is none left; and back, with what was wrong with it.
void* take(int device, std::size_t bytes);
cudaError_t give_back(void* data);

// For memory that processes share (ipc.cpp). An allocation of `least_shared` bytes or more has its
// pages for itself, its guard among them.
inline constexpr std::size_t least_shared = 64 << 10;
struct Allocation {
  int device = -1;
  unsigned char* base = nullptr;
  std::size_t bytes = 0, pages = 0;  // pages: in bytes, 0 where it shares its last one
};
Allocation allocation_at(const void* data);
// A place in a device's arena for another process's allocation of so many bytes, to be mapped
// there; null where there is none. Its guard is the other's affair, and cudaFree refuses it.
void* take_place(int device, std::size_t bytes);
void give_place_back(void* place);
// The file (open for both) becomes the memory of these pages; -1: fresh poison of the process's
// own.
void map_pages(void* base, std::size_t pages, int file);

}  // namespace cuda_host
