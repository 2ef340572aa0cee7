// SPDX-License-Identifier: Apache-2.0
// What CUDA brings to the core: memory, streams, devices. Registered by whoever links it
// (register_spaces), and asks for a driver only when first used, so a build with CUDA runs on a
// machine without. Thread safety: any thread.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/autograd/core/stream.h>

#include <cuda_runtime_api.h>

#include <memory>

namespace peal::cuda {

// Makes memory and streams known to memory_space(), Stream and Event. May be called again.
void register_spaces();

const StreamSpace& stream_space();

// Makes the device the calling thread's current one. Peal never relies on what was current before.
void use(Device device);

// The current stream of the device (stream.h), which becomes the thread's current device.
cudaStream_t stream_on(Device device);

// While one of these lives, memory that is allocated on the stream comes from a pool of its own,
// and goes back there: work that is captured into a graph finds its memory again at each replay.
// The pool is free for others when the last handle to it is gone.
class MemoryPool {
 public:
  explicit MemoryPool(Device device);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  void begin(cudaStream_t stream);
  void end(cudaStream_t stream);

 private:
  Device device_;
  int id_;
};

}  // namespace peal::cuda
