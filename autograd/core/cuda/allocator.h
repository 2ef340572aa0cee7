// SPDX-License-Identifier: Apache-2.0
// The caching allocator of CUDA memory, ordered by streams: a released block is given out again at
// once to the stream that it belongs to, whose queue keeps the order; other streams never get it.
// So neither allocation nor release waits for the device. A block that was used on further streams
// (record_stream) rests until events on them are reached. Blocks come in size classes (at most
// 25 % lost; a block of up to twice the size serves where none fits), small ones are cut from slabs
// of 2 MiB. All are aligned to 256 bytes, as cuBLASLt wants its workspace. While a graph is
// captured its stream allocates from a pool of its own (graph.h). When the device
// has no memory left, cached blocks are given back and it is tried again; the error says what is
// held. Thread safety: all functions, any thread.
#pragma once

#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/device.h>

#include <cuda_runtime_api.h>

#include <cstddef>

namespace peal::cuda {

void* allocate(Device device, std::size_t bytes, cudaStream_t stream);
// Never throws: it runs in destructors, maybe after the driver is gone.
void release(Device device, void* data);
void record_stream(Device device, void* data, cudaStream_t stream);
AllocatorStatistics statistics(Device device);
void reset_peak(Device device);
// Gives cached blocks of no pool back to the driver. Waits for the device; does nothing while work
// is captured.
void empty_cache(Device device);

// Blocks that `stream` asks for come from the pool, until end_pool.
int make_pool(Device device);
void begin_pool(Device device, int pool, cudaStream_t stream);
void end_pool(Device device, cudaStream_t stream);
// Its blocks become the stream's; those in use when they are released. REQUIRES: what used the pool
// is over, or in that stream.
void release_pool(Device device, int pool, cudaStream_t stream);

}  // namespace peal::cuda
