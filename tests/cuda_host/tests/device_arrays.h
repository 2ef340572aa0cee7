// SPDX-License-Identifier: Apache-2.0
// What the simulator's own tests share: arrays of a device, and launches without peal.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include <doctest/doctest.h>

namespace cuda_host::testing {

inline void check(cudaError_t error) {
  REQUIRE_MESSAGE(error == cudaSuccess, cudaGetErrorString(error));
}

inline constexpr struct Fresh {
} fresh;

template <class T>
class Array {
 public:
  Array(Fresh, std::size_t size) : size_(size) { check(cudaMalloc(&data_, size * sizeof(T))); }
  explicit Array(const std::vector<T>& values) : Array(fresh, values.size()) {
    check(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Array() { static_cast<void>(cudaFree(data_)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() const { return data_; }
  std::vector<T> read(cudaStream_t stream = nullptr) const {
    std::vector<T> values(size_);
    check(cudaMemcpyAsync(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost, stream));
    return values;
  }

 private:
  std::size_t size_;
  T* data_ = nullptr;
};

struct Stream {
  cudaStream_t handle = nullptr;
  Stream() { check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
  ~Stream() { static_cast<void>(cudaStreamDestroy(handle)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return handle; }
};

struct Event {
  cudaEvent_t handle = nullptr;
  Event() { check(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming)); }
  ~Event() { static_cast<void>(cudaEventDestroy(handle)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return handle; }
};

template <class... Parameters, class... Args>
cudaError_t start(cudaStream_t stream, dim3 grid, dim3 block, void (*kernel)(Parameters...),
                  const Args&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...);
}

}  // namespace cuda_host::testing
