// SPDX-License-Identifier: Apache-2.0
// Starting kernels. Every kernel of peal is started by launch(), which is plain C++ (no <<<>>>): so
// the tests compile the same sources for the host, where a block's threads are fibers. It asks for
// the device's current stream, and turns a refused start into an Error with the kernel's
// name. Kernels have at most `block` threads a block, so that no use of registers refuses them.
// Thread safety: launches of one thread are ordered on its stream.
#pragma once

#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/tensor.h>

#include <cuda_runtime.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

namespace peal::cuda {

inline constexpr int block = 256;  // threads

// The device that a kernel runs on: one, or that of a tensor.
struct On {
  Device device;
  On(Device device) : device(device) {}                  // NOLINT: passed as either
  On(const Tensor& tensor) : device(tensor.device()) {}  // NOLINT
};

[[noreturn]] inline void launch_failed(cudaError_t status, const void* kernel, std::int64_t blocks,
                                       int threads) {
  const char* symbol = nullptr;
  std::string name = "a kernel";
  if (cudaFuncGetName(&symbol, kernel) == cudaSuccess && symbol != nullptr) {
    int unread = 0;
    char* plain = abi::__cxa_demangle(symbol, nullptr, nullptr, &unread);
    name = plain != nullptr ? plain : symbol;
    std::free(plain);
  }
  fail(concat("cuda: could not start ", name, " with ", blocks, " blocks of ", threads,
              " threads: ", cudaGetErrorString(status),
              " (an error of its own, or one of work before it that is told only now)"));
}

// kernel(args...) on `blocks` blocks of `threads` threads; nothing where there are no blocks.
template <class... Parameters, class... Args>
void launch(On on, std::int64_t blocks, int threads, void (*kernel)(Parameters...),
            const Args&... args) {
  if (blocks == 0) return;
  PEAL_CHECK(blocks <= std::numeric_limits<std::int32_t>::max(), "cuda: a kernel of ", blocks,
             " blocks; at most 2^31 - 1 can be started");
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream_on(on.device);  // and the device becomes current
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(args)...);
  if (status != cudaSuccess) {
    launch_failed(status, reinterpret_cast<const void*>(kernel), blocks, threads);
  }
}

// Enough blocks for n threads, and no more than loops in strides of the grid have use for.
inline std::int64_t blocks_for(std::int64_t n) {
  return std::min<std::int64_t>((n + block - 1) / block, std::int64_t{1} << 16);
}

// This thread's number in the grid, and how many there are.
__device__ inline std::int64_t thread_number() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t thread_count() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

template <class F>
__global__ void each(std::int64_t n, F f) {
  for (std::int64_t i = thread_number(); i < n; i += thread_count()) f(i);
}

// f(i) for every i in [0, n).
template <class F>
void for_each(On on, std::int64_t n, const F& f) {
  launch(on, blocks_for(n), block, each<F>, n, f);
}

template <class T>
T* pointer(const Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.raw()) : nullptr;
}

}  // namespace peal::cuda
