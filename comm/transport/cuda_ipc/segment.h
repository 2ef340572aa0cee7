// SPDX-License-Identifier: Apache-2.0
// Segment: device memory of this rank that other processes of the node reach into, and theirs, by
// cudaIpcMemHandle_t. Ranks make one together, each with as many bytes, so a place in one rank's
// part has its like in the others'.
//
// CUDA forbids to free what another process has open. So the destructor closes the others' parts,
// but leaves this rank's own to the process; free_own() is for who knows that all have closed it.
// Thread safety: one thread at a time.
#pragma once

#include <peal/autograd/core/device.h>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace peal::comm::ipc {

class Segment {
 public:
  // Zeroed, of a process of its own use: whole blocks of what CUDA shares. Error where the device
  // has none left, or shares none.
  Segment(Device device, std::size_t bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const cudaIpcMemHandle_t& handle() const { return handle_; }
  // The others' parts, by rank; `rank` is this one's. Error where one cannot be reached.
  void open(const std::vector<cudaIpcMemHandle_t>& handles, int rank);
  // REQUIRES: no kernel of this rank is in the others' parts.
  void close();
  // REQUIRES: nobody has opened it, or all have closed it.
  void free_own();
  // Another rank has failed, and nobody knows what is still at work: nothing is closed any more.
  void leave_open() { parts_.clear(); }

  std::byte* own() const { return own_; }
  // As this process sees them, by rank; this rank's own among them.
  const std::vector<std::byte*>& parts() const { return parts_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Device device_;
  std::size_t bytes_;
  std::byte* own_ = nullptr;
  cudaIpcMemHandle_t handle_ = {};
  std::vector<std::byte*> parts_;
};

}  // namespace peal::comm::ipc
