// SPDX-License-Identifier: Apache-2.0
// Copies and fills. What CUDA lets go on by itself does: between devices, and to and from pinned
// memory, whose bytes are read when the copy runs. From pageable memory the bytes are taken at the
// call, and to it the call waits.
#include "error.h"
#include "memory.h"
#include "queue.h"

#include <cstring>
#include <memory>
#include <vector>

using namespace cuda_host;

namespace {

struct Rows {
  void* dst;
  std::size_t dst_pitch;
  const void* src;
  std::size_t src_pitch, width, height;
  std::size_t dst_bytes() const { return (height - 1) * dst_pitch + width; }
  std::size_t src_bytes() const { return (height - 1) * src_pitch + width; }
};

void move(const Rows& rows) {
  for (std::size_t i = 0; i < rows.height; ++i) {
    std::memcpy(static_cast<char*>(rows.dst) + i * rows.dst_pitch,
                static_cast<const char*>(rows.src) + i * rows.src_pitch, rows.width);
  }
}

bool agrees(cudaMemcpyKind kind, bool from_device, bool to_device) {
  if (kind == cudaMemcpyDefault) return true;
  return (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice) == from_device &&
         (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) == to_device;
}

cudaError_t copy(Rows rows, cudaMemcpyKind kind, cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (rows.width == 0 || rows.height == 0) return cudaSuccess;
  const int to = device_of(rows.dst), from = device_of(rows.src);
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  if (!agrees(kind, from >= 0, to >= 0) || (to >= 0 && room_at(rows.dst) < rows.dst_bytes()) ||
      (from >= 0 && room_at(rows.src) < rows.src_bytes())) {
    return cudaErrorInvalidValue;
  }
  const bool pageable_dst = to < 0 && !is_pinned(rows.dst);
  const bool pageable_src = from < 0 && !is_pinned(rows.src);
  if (stream->capture != nullptr && (pageable_src || pageable_dst)) {
    return cudaErrorStreamCaptureUnsupported;
  }
  std::shared_ptr<std::vector<char>> staged;
  if (pageable_src) {
    const auto* first = static_cast<const char*>(rows.src);
    staged = std::make_shared<std::vector<char>>(first, first + rows.src_bytes());
    rows.src = staged->data();
  }
  const unsigned touched = (to >= 0 ? 1u << to : 0) | (from >= 0 ? 1u << from : 0);
  const cudaError_t error =
      enqueue(stream, {.run = [rows, staged] { move(rows); }, .devices = touched});
  if (error == cudaSuccess && pageable_dst) finish(stream);
  return error;
}

}  // namespace

cudaError_t cudaMemcpyAsync(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return result(copy({dst, bytes, src, bytes, bytes, 1}, kind, stream));
}

cudaError_t cudaMemcpy2DAsync(void* dst, std::size_t dst_pitch, const void* src,
                              std::size_t src_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  if (width > dst_pitch || width > src_pitch) return result(cudaErrorInvalidValue);
  return result(copy({dst, dst_pitch, src, src_pitch, width, height}, kind, stream));
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device,
                                std::size_t bytes, cudaStream_t stream) {
  if (bytes != 0 && (device_of(dst) != dst_device || device_of(src) != src_device)) {
    return result(cudaErrorInvalidValue);
  }
  return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpy(void* dst, const void* src, std::size_t bytes, cudaMemcpyKind kind) {
  const auto guard = lock();
  const cudaError_t error = copy({dst, bytes, src, bytes, bytes, 1}, kind, nullptr);
  if (error == cudaSuccess && (device_of(dst) < 0 || device_of(src) < 0))
    finish(stream_of(nullptr));
  return result(error);
}

cudaError_t cudaMemsetAsync(void* dst, int value, std::size_t bytes, cudaStream_t handle) {
  const auto guard = lock();
  CUstream_st* stream = stream_of(handle);
  if (stream == nullptr) return result(cudaErrorInvalidResourceHandle);
  const int device = device_of(dst);
  if (bytes != 0 && (device >= 0 ? room_at(dst) < bytes : !is_pinned(dst))) {
    return result(cudaErrorInvalidValue);
  }
  return result(enqueue(stream, {.run = [=] { std::memset(dst, value, bytes); },
                                 .devices = device >= 0 ? 1u << device : 0}));
}

cudaError_t cudaMemset(void* dst, int value, std::size_t bytes) {
  return cudaMemsetAsync(dst, value, bytes, nullptr);
}
