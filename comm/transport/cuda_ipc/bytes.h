// SPDX-License-Identifier: Apache-2.0
// Bytes moved by the threads of a block, in accesses of 16 bytes where both sides are aligned to
// them. Thread safety: a __syncthreads() or a meeting must lie between it and who reads.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace peal::comm::ipc {

struct alignas(16) Quad {
  std::uint64_t at[2];
};

template <class T>
__device__ void move_as(std::byte* to, const std::byte* from, std::int64_t bytes) {
  constexpr int at_once = 4;  // loads on their way for a thread
  const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(T)), step = blockDim.x;
  for (std::int64_t i = threadIdx.x; i < count; i += at_once * step) {
    T values[at_once];
    for (int k = 0; k < at_once; ++k) {
      if (i + k * step < count) values[k] = reinterpret_cast<const T*>(from)[i + k * step];
    }
    for (int k = 0; k < at_once; ++k) {
      if (i + k * step < count) reinterpret_cast<T*>(to)[i + k * step] = values[k];
    }
  }
  for (std::int64_t i = count * static_cast<std::int64_t>(sizeof(T)) + threadIdx.x; i < bytes;
       i += step) {
    to[i] = from[i];
  }
}

__device__ inline void move_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  const auto bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if (bits % 16 == 0) return move_as<Quad>(to, from, bytes);
  if (bits % 4 == 0) return move_as<std::uint32_t>(to, from, bytes);
  move_as<std::byte>(to, from, bytes);
}

}  // namespace peal::comm::ipc
