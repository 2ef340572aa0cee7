// SPDX-License-Identifier: Apache-2.0
// Signals between the blocks of threads of different ranks: flags, as kernels make and await them.
//
// Numbers only grow: a block counts its signals in its own window, and leaves the count in the
// other's. So nothing is ever reset, and a captured kernel can be replayed. With the count goes a
// signature of the operation: ranks that are in different ones never pass, and the control plane
// says which. A kernel that waits in vain is ended by a word of the host. Thread safety: as
// window.h says.
#pragma once

#include <peal/comm/transport/cuda_ipc/window.h>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace peal::comm::ipc {

__device__ inline Window& window_of(const Group& group, int rank) {
  return *reinterpret_cast<Window*>(group.windows[rank]);
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
    // The host's word is far away, so it is not asked each time, and not at first.
    if (spins % 64 == 63 &&
        __nv_atomic_load_n(group.ended, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_SYSTEM) != 0) {
      return false;
    }
    __nanosleep(20);
  }
  return true;
}

// A block's part in one operation. Its functions are called by all threads of the block, of which
// each knows one peer's counts: thread r those of rank r.
class Signals {
 public:
  // `mine`: where this rank's buffers lie.
  __device__ Signals(const Group& group, const Lie& mine)
      : group_(group),
        mine_(mine),
        own_(window_of(group, group.rank)),
        operation_(own_.operations[blockIdx.x]) {
    if (!has_peer()) return;
    sent_ = own_.sent[blockIdx.x][threadIdx.x];
    heard_ = own_.heard[blockIdx.x][threadIdx.x];
  }

  // Signals to some ranks, bits, and then awaits those of some. What this block did before is seen
  // by the same block of those ranks after their await. False: the host has ended it, and the
  // kernel has to return.
  __device__ bool meet(unsigned signals, unsigned awaits) {
    __syncthreads();
    int ended = 0;
    const unsigned peer = threadIdx.x;
    if (has_peer() && (signals >> peer & 1) != 0) {
      Window& theirs = window_of(group_, static_cast<int>(peer));
      theirs.lies[operation_ % 2][blockIdx.x][group_.rank] = mine_;
      release(&theirs.signals[blockIdx.x][group_.rank], ++sent_ << 16 | group_.signature);
    }
    if (has_peer() && (awaits >> peer & 1) != 0) {
      const Count next = ++heard_;
      const auto come = [&] {  // or a later one, which says that this was of the same operation
        const Count seen = acquire(&own_.signals[blockIdx.x][peer]);
        return seen == (next << 16 | group_.signature) || seen >> 16 > next;
      };
      ended = await(group_, come) ? 0 : 1;
    }
    return __syncthreads_or(ended) == 0;
  }

  // Where that rank's buffers lie. REQUIRES: it has been awaited.
  __device__ Lie lie_of(int rank) const {
    return rank == group_.rank ? mine_ : own_.lies[operation_ % 2][blockIdx.x][rank];
  }

  // True where everybody's `in` lies in one segment, and everybody's `out`: the same on all ranks.
  __device__ bool reach_all() const {
    for (int r = 0; r < group_.world; ++r) {
      const Lie lie = lie_of(r);
      if (lie.in == 0 || lie.out == 0 || segment_of(lie.in) != segment_of(mine_.in) ||
          segment_of(lie.out) != segment_of(mine_.out)) {
        return false;
      }
    }
    return true;
  }

  // The operation's half of this block's room, of a rank.
  __device__ std::byte* half_of(int rank) const {
    const auto number = static_cast<std::int64_t>(blockIdx.x * 2 + operation_ % 2);
    return group_.windows[rank] + halves_at + number * group_.half;
  }

  // At the operation's end.
  __device__ void keep() {
    if (has_peer()) {
      own_.sent[blockIdx.x][threadIdx.x] = sent_;
      own_.heard[blockIdx.x][threadIdx.x] = heard_;
    }
    __syncthreads();  // everybody has read the old number
    if (threadIdx.x == 0) own_.operations[blockIdx.x] = operation_ + 1;
  }

 private:
  __device__ bool has_peer() const { return static_cast<int>(threadIdx.x) < group_.world; }

  const Group& group_;
  const Lie& mine_;
  Window& own_;
  Count operation_, sent_ = 0, heard_ = 0;
};

}  // namespace peal::comm::ipc
