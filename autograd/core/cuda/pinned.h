// SPDX-License-Identifier: Apache-2.0
// Page-locked memory of the host, cached, for page-locking costs milliseconds (PyTorch:
// CachingHostAllocator). A block that is let go of while a stream still copies from or to it rests
// until that copy is over: so a batch may go out of scope right after to(device, true). What a
// captured graph copies from or to is its owner's to keep. Thread safety: any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

namespace peal::cuda {

std::shared_ptr<void> allocate_pinned(std::size_t bytes);
// Whether it lies in memory of allocate_pinned().
bool is_pinned(const void* data);
// The last thing in the stream, which does not capture, is a copy from or to it; nothing where it
// lies in other memory. REQUIRES: the stream's device is the thread's current one.
void note_copy(const void* data, cudaStream_t stream);

}  // namespace peal::cuda
