// SPDX-License-Identifier: Apache-2.0
// Peer access: what ranks must know of each other before they share memory, and whether they can.
// Thread safety: free functions without state.
#pragma once

#include <peal/autograd/core/device.h>

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

namespace peal::comm::ipc {

struct Member {
  cudaIpcMemHandle_t handle = {};  // of its window
  std::string host;                // machine and boot
  std::string process;
  std::string device;      // its UUID
  std::string processors;  // of the device
  std::string options;     // which all must share
  std::string problem;     // why it has no window
};

// Without window and options.
Member this_process(Device device);
std::string pack(const Member& member);
Member unpack(const std::string& text);

// Empty where these ranks can share memory, else why not; the same on all ranks.
std::string obstacle(const std::vector<Member>& members);
// How many blocks of threads a rank's kernels may have so that those of all ranks run at once.
int blocks_beside(const std::vector<Member>& members);

}  // namespace peal::comm::ipc
