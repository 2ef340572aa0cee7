// SPDX-License-Identifier: Apache-2.0
// Device memory from CUDA's stream-ordered pool, which caches, so allocation costs no
// synchronisation.
#include <peal/autograd/kernels/cuda/check.h>
#include <peal/autograd/kernels/cuda/device.h>

namespace peal::cuda {
namespace {

// Makes a device current while it lives.
class Current {
 public:
  explicit Current(Device device) {
    PEAL_CUDA_CHECK(cudaGetDevice(&before_));
    PEAL_CUDA_CHECK(cudaSetDevice(device.index));
  }
  ~Current() { cudaSetDevice(before_); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  int before_ = 0;
};

void* allocate(Device device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const Current current(device);
  void* data = nullptr;
  PEAL_CUDA_CHECK(cudaMallocAsync(&data, bytes, cudaStreamPerThread));
  return data;
}

// Runs in destructors, maybe after the driver is gone: nothing is left to report to.
void release(Device, void* data, std::size_t) {
  if (data != nullptr) static_cast<void>(cudaFreeAsync(data, cudaStreamPerThread));
}

void zero(Device device, void* data, std::size_t bytes) {
  if (bytes == 0) return;
  const Current current(device);
  PEAL_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, cudaStreamPerThread));
}

void copy(void* dst, Device to, const void* src, Device from, std::size_t bytes) {
  if (bytes == 0) return;
  const Current current(to.type == DeviceType::cuda ? to : from);
  PEAL_CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, cudaStreamPerThread));
  PEAL_CUDA_CHECK(cudaStreamSynchronize(cudaStreamPerThread));
}

}  // namespace

const MemorySpace& memory() {
  static const MemorySpace space = {allocate, release, zero, copy};
  return space;
}

}  // namespace peal::cuda
