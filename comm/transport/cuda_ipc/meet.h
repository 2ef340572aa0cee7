// SPDX-License-Identifier: Apache-2.0
// A barrier between the blocks of threads of different ranks, and how they meet there. A kernel has
// as many blocks on every rank, and block b of one rank works with block b of the others alone, so
// no block waits for another of its own kernel.
//
// Numbers only grow: a block counts the meetings it has had in its own room, and leaves the count
// in everybody's. So nothing is ever reset, and a captured kernel can be replayed. With the count
// goes a signature of the operation: ranks that are in different ones never pass, and the control
// plane says which. A kernel that waits in vain is ended by a word of the host. Thread safety: as
// room.h says.
#pragma once

#include <peal/comm/transport/cuda_ipc/room.h>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace peal::comm::ipc {

__device__ inline Room& room_of(const Group& group, int rank) {
  return *reinterpret_cast<Room*>(group.rooms[rank]);
}

// One of this block's halves in a rank's room.
__device__ inline std::byte* half_of(const Group& group, int rank, Count turn) {
  const auto number = static_cast<std::int64_t>(blockIdx.x * 2 + turn % 2);
  return group.rooms[rank] + halves_at + number * group.half;
}

__device__ inline Count acquire(Count* at) {
  return __nv_atomic_load_n(at, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_SYSTEM);
}
__device__ inline void release(Count* at, Count value) {
  __nv_atomic_store_n(at, value, __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_SYSTEM);
}

// Spins until there() or the host has ended it: then false. By one thread.
template <class There>
__device__ bool await(const Group& group, There there) {
  for (unsigned spins = 0; !there(); ++spins) {
    // The host's word is far away, so it is not asked each time.
    if (spins % 64 == 0 &&
        __nv_atomic_load_n(group.ended, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_SYSTEM) != 0) {
      return false;
    }
    __nanosleep(20);
  }
  return true;
}

// By all threads of the block. What this block has written is seen by the same block of the others
// after it, and the other way round. False: the host has ended it, and the kernel has to return.
__device__ inline bool meet(const Group& group, Count& meetings) {
  ++meetings;
  __syncthreads();
  int ended = 0;
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < group.world) {
    const Count mine = meetings << 16 | group.signature;
    release(&room_of(group, peer).arrived[blockIdx.x][group.rank], mine);
    Count* theirs = &room_of(group, group.rank).arrived[blockIdx.x][peer];
    const auto come = [&] {
      const Count seen = acquire(theirs);
      return seen == mine || seen >> 16 > meetings;  // a peer may be at the next already
    };
    ended = await(group, come) ? 0 : 1;
  }
  return __syncthreads_or(ended) == 0;
}

}  // namespace peal::comm::ipc
