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

const StreamSpace& streams();

// Makes the device the calling thread's current one. Peal never relies on what was current before.
void use(Device device);
// The device that any thread made current last; the first one where none did.
Device last_used();

// Waits for all of peal's streams on the device, but for those that are captured.
void wait_for_streams(Device device);

// The current stream of the device (stream.h), which becomes the thread's current device.
cudaStream_t stream_on(Device device);

}  // namespace peal::cuda
