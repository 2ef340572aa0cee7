// SPDX-License-Identifier: Apache-2.0
// Streams, and host functions in them.
#include "capture.h"
#include "device.h"
#include "error.h"
#include "memory.h"
#include "random.h"
#include "streams.h"

#include <algorithm>
#include <array>

namespace cuda_host {
namespace {

CUstream_st* make(int device, bool blocking, bool legacy) {
  // Those that were destroyed and have come to their end go here, where no list is being walked.
  std::erase_if(streams(),
                [](const auto& stream) { return stream->gone && stream->queue.empty(); });
  auto stream = std::make_unique<CUstream_st>();
  stream->device = device;
  stream->blocking = blocking;
  stream->legacy = legacy;
  streams().push_back(std::move(stream));
  return streams().back().get();
}

// A thread's own streams end with it, as the runtime's do.
struct PerThread {
  std::array<CUstream_st*, devices> streams{};
  ~PerThread() {
    const auto guard = lock();
    for (CUstream_st* stream : streams) {
      if (stream != nullptr) stream->gone = true;
    }
  }
};
thread_local PerThread per_thread;

bool exists(CUstream_st* stream) {
  return std::any_of(streams().begin(), streams().end(),
                     [&](const auto& one) { return one.get() == stream && !one->gone; });
}

}  // namespace

std::vector<std::unique_ptr<CUstream_st>>& streams() {
  static auto& all = *new std::vector<std::unique_ptr<CUstream_st>>;
  return all;
}

CUstream_st* stream_of(cudaStream_t handle) {
  const auto guard = lock();
  const int device = current_device();
  if (handle == nullptr || handle == cudaStreamLegacy) {
    static std::array<CUstream_st*, devices> legacy{};
    auto& stream = legacy[static_cast<std::size_t>(device)];
    if (stream == nullptr) stream = make(device, true, true);
    return stream;
  }
  if (handle == cudaStreamPerThread) {
    auto& stream = per_thread.streams[static_cast<std::size_t>(device)];
    if (stream == nullptr) stream = make(device, true, false);
    return stream;
  }
  return exists(handle) ? handle : nullptr;
}

}  // namespace cuda_host

using namespace cuda_host;

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  const auto guard = lock();
  if (stream == nullptr || flags > cudaStreamNonBlocking) return result(cudaErrorInvalidValue);
  *stream = make(current_device(), flags == cudaStreamDefault, false);
  return result(cudaSuccess);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr || stream != handle) return result(cudaErrorInvalidResourceHandle);
  stream->gone = true;  // what was given to it still runs
  return result(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) stream->capture->broken = true;
  if (stream->capture != nullptr || forbidden_by_capture()) {
    return result(cudaErrorStreamCaptureUnsupported);
  }
  finish(stream);
  check_guards();
  return result(cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return result(cudaErrorInvalidResourceHandle);
  if (stream->capture != nullptr) stream->capture->broken = true;
  if (stream->capture != nullptr || forbidden_by_capture()) {
    return result(cudaErrorStreamCaptureUnsupported);
  }
  return result(nudge(stream->last) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  const auto guard = lock();
  const CUstream_st* stream = stream_of(handle);
  if (stream == nullptr || device == nullptr) return result(cudaErrorInvalidResourceHandle);
  *device = stream->device;
  return result(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return result(cudaErrorInvalidResourceHandle);
  if (function == nullptr) return result(cudaErrorInvalidValue);
  return result(enqueue(stream, {.run = [=] { function(data); }}));
}
