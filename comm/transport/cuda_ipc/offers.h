// SPDX-License-Identifier: Apache-2.0
// Offers: handle exchange: what ranks tell each other, through memory of the host, when they make
// segments of a device and give them back (shared.cpp). Thread safety: as CudaIpcTransport's, but
// for Released.
#pragma once

#include <peal/comm/transport/cuda_ipc/cuda_ipc.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace peal::comm {

// What a rank tells the others when a segment is made, and what it has closed since the last time.
struct CudaIpcTransport::Offer {
  static constexpr std::size_t most_closed = 8;
  cudaIpcMemHandle_t handle;
  std::uint64_t bytes;  // 0: it has none to give
  std::uint64_t closed[most_closed];
};

// Page-locked memory of the host, that kernels and copies reach. Not given back after a failure.
struct CudaIpcTransport::Words {
  unsigned ended = 0;
  Offer offers[ipc::most_ranks];
};

// Numbers of segments of which the last tensor is gone, or the sub-group, and of which the others
// have not been told.
struct CudaIpcTransport::Released {
  std::mutex mutex;
  std::vector<std::uint64_t> numbers;
  void add(std::uint64_t number) {
    const std::lock_guard guard(mutex);
    numbers.push_back(number);
  }
};

}  // namespace peal::comm
