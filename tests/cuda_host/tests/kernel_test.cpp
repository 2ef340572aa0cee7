// SPDX-License-Identifier: Apache-2.0
// Kernels on fibers: barriers, warps, atomics, and what the simulator says of kernels that are
// wrong.
#include "device_arrays.h"
#include "queue.h"
#include "random.h"

#include <set>
#include <string>

using namespace cuda_host::testing;

namespace {

__global__ void number_threads(int* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned at = block * blockDim.x * blockDim.y * blockDim.z + thread;
  out[at] = static_cast<int>(at);
}

// The sum of a block's numbers by halving.
__global__ void sum_block(const int* x, int* out) {
  __shared__ int parts[256];
  const unsigned own = threadIdx.x;
  parts[own] = x[blockIdx.x * blockDim.x + own];
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (own < half) parts[own] += parts[own + half];
  }
  if (own == 0) out[blockIdx.x] = parts[0];
}

// The same with the barriers forgotten.
__global__ void sum_block_racing(const int* x, int* out) {
  __shared__ int parts[256];
  const unsigned own = threadIdx.x;
  parts[own] = x[blockIdx.x * blockDim.x + own];
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (own < half) parts[own] += parts[own + half];
  }
  if (own == 0) out[blockIdx.x] = parts[0];
}

__global__ void use_warp(int* out) {
  const int own = static_cast<int>(threadIdx.x), lane = own % 32;
  int* mine = out + own * 8;
  mine[0] = __shfl_sync(0xffffffffu, own, 5);
  mine[1] = __shfl_xor_sync(0xffffffffu, own, 3);
  mine[2] = __shfl_down_sync(0xffffffffu, own, 4);
  mine[3] = __shfl_up_sync(0xffffffffu, own, 4);
  mine[4] = static_cast<int>(__ballot_sync(0xffffffffu, lane % 3 == 0));
  mine[5] = __any_sync(0xffffffffu, own == 33) * 2 + __all_sync(0xffffffffu, own < 32);
  mine[6] = __shfl_xor_sync(0xffffffffu, own, 1, 8) + __shfl_down_sync(0xffffffffu, own, 7, 8);
  __syncwarp();
  mine[7] = static_cast<int>(__shfl_sync(0xffffffffu, static_cast<double>(own) / 2, 1) * 2);
}

__global__ void count(unsigned long long* total, float* sum, int* most) {
  atomicAdd(total, 1ull);
  atomicAdd(sum, 0.5f);
  atomicMax(most, static_cast<int>(threadIdx.x));
}

__global__ void half_leaves() {
  if (threadIdx.x < 32) return;
  __syncthreads();
}

// Lane 0 waits for its warp, which waits for the block.
__global__ void stuck() {
  if (threadIdx.x == 0)
    __syncwarp();
  else
    __syncthreads();
}

__global__ void trap() {
  if (threadIdx.x == 40) __trap();
}

__global__ void write_behind(int* x) { x[5] = 1; }

__global__ void note_order(int* order, unsigned* next) {
  order[(*next)++] = static_cast<int>(threadIdx.x);
}

}  // namespace

TEST_CASE("every thread of every block runs once") {
  const Array<int> out(fresh, 3 * 4 * 2 * 5 * 3 * 2);
  check(start(nullptr, {3, 4, 2}, {5, 3, 2}, number_threads, out.data()));
  const auto values = out.read();
  for (std::size_t i = 0; i < values.size(); ++i) REQUIRE(values[i] == static_cast<int>(i));
}

TEST_CASE("barriers hold threads together") {
  std::vector<int> x(256 * 7);
  std::vector<int> sums(7);
  for (std::size_t i = 0; i < x.size(); ++i) sums[i / 256] += x[i] = static_cast<int>(i * i % 1009);
  const Array<int> in(x), out(fresh, 7);
  check(start(nullptr, 7, 256, sum_block, in.data(), out.data()));
  CHECK(out.read() == sums);
  check(start(nullptr, 7, 256, sum_block_racing, in.data(), out.data()));
  CHECK(out.read() != sums);
}

TEST_CASE("lanes of a warp exchange values") {
  const Array<int> out(fresh, 64 * 8);
  check(start(nullptr, 1, 64, use_warp, out.data()));
  const auto values = out.read();
  for (int own = 0; own < 64; ++own) {
    const int lane = own % 32, first = own - lane;
    const int* mine = values.data() + own * 8;
    CHECK(mine[0] == first + 5);
    CHECK(mine[1] == (own ^ 3));
    CHECK(mine[2] == (lane < 28 ? own + 4 : own));
    CHECK(mine[3] == (lane < 4 ? own : own - 4));
    CHECK(static_cast<unsigned>(mine[4]) == 0x49249249u);
    CHECK(mine[5] == (first == 0 ? 1 : 2));
    CHECK(mine[6] == (own ^ 1) + (lane % 8 == 0 ? own + 7 : own));
    CHECK(mine[7] == first + 1);
  }
}

TEST_CASE("atomics count") {
  const Array<unsigned long long> total({0});
  const Array<float> sum({0});
  const Array<int> most({0});
  check(start(nullptr, 10, 100, count, total.data(), sum.data(), most.data()));
  CHECK(total.read()[0] == 1000);
  CHECK(sum.read()[0] == 500);
  CHECK(most.read()[0] == 99);
}

TEST_CASE("a barrier waits for living threads alone") {
  check(start(nullptr, 2, 64, half_leaves));
  check(cudaDeviceSynchronize());
}

TEST_CASE("a kernel that cannot end is named") {
  check(start(nullptr, 1, 64, stuck));
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchTimeout);
  const std::string text = cudaGetErrorString(cudaErrorLaunchTimeout);
  CAPTURE(text);
  CHECK(text.find("stuck()") != std::string::npos);
  CHECK(text.find("block (0, 0, 0): deadlock: of 64 living threads 63 wait at __syncthreads and 1 "
                  "at a warp") != std::string::npos);
  CHECK(cudaGetLastError() == cudaErrorLaunchTimeout);
  CHECK(cudaStreamSynchronize(nullptr) == cudaErrorLaunchTimeout);  // for good
  cuda_host::forget_failure();
  check(cudaDeviceSynchronize());
}

TEST_CASE("a kernel that traps is named") {
  check(start(nullptr, 1, 64, trap));
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  const std::string text = cudaGetErrorString(cudaErrorLaunchFailure);
  CHECK(text.find("trap()") != std::string::npos);
  cuda_host::forget_failure();
}

TEST_CASE("a write behind an allocation is found") {
  {
    const Array<int> x(fresh, 5);
    check(start(nullptr, 1, 1, write_behind, x.data()));
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  }
  cuda_host::forget_failure();
}

TEST_CASE("the order of threads differs with the seed, and only with it") {
  std::set<std::vector<int>> orders;
  for (const std::uint64_t seed : {1, 2, 3, 1}) {
    const Array<int> order(fresh, 8);
    const Array<unsigned> next({0});
    cuda_host::reseed(seed);
    check(start(nullptr, 1, 8, note_order, order.data(), next.data()));
    orders.insert(order.read());
  }
  CHECK(orders.size() == 3);
}

TEST_CASE("what cannot be launched is refused") {
  CHECK(start(nullptr, 1, 1025, half_leaves) == cudaErrorInvalidConfiguration);
  CHECK(start(nullptr, 0, 32, half_leaves) == cudaErrorInvalidConfiguration);
  CHECK(start(nullptr, {1, 70000}, 32, half_leaves) == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaSuccess);
  Stream first;
  check(cudaSetDevice(1));
  CHECK(start(first, 1, 32, half_leaves) == cudaErrorInvalidResourceHandle);
  check(cudaSetDevice(0));
  static_cast<void>(cudaGetLastError());
}
