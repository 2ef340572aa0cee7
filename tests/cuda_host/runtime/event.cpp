// SPDX-License-Identifier: Apache-2.0
// Events. The simulated clock is the host's, and what works say that they take (take_time()), so
// elapsed times say nothing about a GPU.
#include "capture.h"
#include "device.h"
#include "error.h"
#include "streams.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

using namespace cuda_host;

namespace {

// An event shared by IPC is the same one, destroyed when its last handle is.
struct Shared {
  std::unique_ptr<CUevent_st> event;
  int handles = 1;
};
std::vector<Shared>& events() {
  static auto& all = *new std::vector<Shared>;
  return all;
}

Shared* find(cudaEvent_t event) {
  for (Shared& one : events()) {
    if (one.event.get() == event && event != nullptr) return &one;
  }
  return nullptr;
}

}  // namespace

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const auto guard = lock();
  const bool no_timing = (flags & cudaEventDisableTiming) != 0;
  if (event == nullptr || flags > 7 || ((flags & cudaEventInterprocess) != 0 && !no_timing)) {
    return result(cudaErrorInvalidValue);
  }
  auto made = std::make_unique<CUevent_st>();
  made->flags = flags;
  made->device = current_device();
  *event = made.get();
  events().push_back({std::move(made)});
  return result(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const auto guard = lock();
  Shared* shared = find(event);
  if (shared == nullptr) return result(cudaErrorInvalidResourceHandle);
  if (--shared->handles == 0) {
    std::swap(*shared, events().back());
    events().pop_back();
  }
  return result(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(handle);
  if (find(event) == nullptr || stream == nullptr || stream->device != event->device) {
    return result(cudaErrorInvalidResourceHandle);
  }
  if (stream->capture != nullptr) {
    event->capture = stream->capture;
    event->nodes = stream->capture->ends[stream];
    return result(stream->capture->broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
  }
  event->capture = nullptr;
  const cudaError_t error = enqueue(stream, {.run = nullptr});
  if (error == cudaSuccess) event->last = stream->last;
  return result(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(handle);
  if (find(event) == nullptr || stream == nullptr) return result(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) {
    Capture& capture = *event->capture;
    if (capture.ended) return result(cudaErrorCapturedEvent);
    if (stream->capture != nullptr && stream->capture != event->capture) {
      capture.broken = stream->capture->broken = true;
      return result(cudaErrorStreamCaptureMerge);
    }
    if (stream->legacy) return result(cudaErrorStreamCaptureImplicit);
    stream->capture = event->capture;
    auto& ends = capture.ends[stream];
    ends.insert(ends.end(), event->nodes.begin(), event->nodes.end());
    return result(cudaSuccess);
  }
  if (stream->capture != nullptr && event->last != nullptr) {
    stream->capture->broken = true;
    return result(cudaErrorStreamCaptureIsolation);
  }
  if (event->last == nullptr || event->last->done) return result(cudaSuccess);
  return result(enqueue(stream, {.run = nullptr, .after = {event->last}}));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto guard = lock();
  if (find(event) == nullptr) return result(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) return result(cudaErrorCapturedEvent);
  if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
  return result(nudge(event->last) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto guard = lock();
  if (find(event) == nullptr) return result(cudaErrorInvalidResourceHandle);
  if (event->capture != nullptr) return result(cudaErrorCapturedEvent);
  if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
  finish(event->last);
  return result(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const auto guard = lock();
  if (find(start) == nullptr || find(end) == nullptr || start->last == nullptr ||
      end->last == nullptr || ((start->flags | end->flags) & cudaEventDisableTiming) != 0) {
    return result(cudaErrorInvalidResourceHandle);
  }
  if (!start->last->done || !end->last->done) return result(cudaErrorNotReady);
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->last->when - start->last->when).count();
  return result(cudaSuccess);
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  const auto guard = lock();
  if (find(event) == nullptr || (event->flags & cudaEventInterprocess) == 0) {
    return result(cudaErrorInvalidResourceHandle);
  }
  *handle = {};
  std::memcpy(handle->reserved, &event, sizeof(event));
  return result(cudaSuccess);
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  const auto guard = lock();
  std::memcpy(event, handle.reserved, sizeof(*event));
  Shared* shared = find(*event);
  if (shared == nullptr) return result(cudaErrorInvalidResourceHandle);
  ++shared->handles;
  return result(cudaSuccess);
}
