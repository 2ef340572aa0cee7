// SPDX-License-Identifier: Apache-2.0
// What a kernel sees of CUDA, on the host. A .cu file is compiled with this header included first,
// as nvcc does. __CUDACC__ stays undefined: the compiler is the host's, and there is no
// second pass. A function of the device is a function; __shared__ is a static of the host thread
// that runs the block; threads of a block are fibers, so only __syncthreads and the warp
// operations let another thread run, and an atomic operation is an ordinary one.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static thread_local
#define __grid_constant__
extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace cuda_host {

// Queues one launch: `thread` is the kernel with its arguments, run once for each thread.
cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread);

enum class WarpOp { sync, shuffle, ballot, together };
// The calling lane gives `value` and waits for the living lanes of the mask. What it gets: for
// shuffle the value of lane `source`; for ballot the lanes whose value is not 0.
std::uint64_t warp_exchange(WarpOp op, unsigned mask, std::uint64_t value, int source);
int lane();

template <class T>
T shuffle(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = warp_exchange(WarpOp::shuffle, mask, bits, source);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class T, class F>
T exchange(T* at, F next) {
  const T before = *at;
  *at = next(before);
  return before;
}

}  // namespace cuda_host

template <class... Expected, class... Actual>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...),
                               Actual&&... args) {
  return cuda_host::launch(
      *config, reinterpret_cast<const void*>(kernel),
      [kernel, values = std::tuple<std::decay_t<Expected>...>(std::forward<Actual>(args)...)] {
        std::apply(kernel, values);
      });
}

template <class T>
cudaError_t cudaMalloc(T** data, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(data), bytes);
}
template <class T>
cudaError_t cudaMallocHost(T** data, std::size_t bytes, unsigned flags = 0) {
  return cudaHostAlloc(reinterpret_cast<void**>(data), bytes, flags);
}

void __syncthreads();
int __syncthreads_or(int predicate);  // true for all where it is for any
// In a loop that waits for another block, stream or process: the only place where the simulator
// lets them go on.
void __nanosleep(unsigned nanoseconds);
void __trap();
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  cuda_host::warp_exchange(cuda_host::WarpOp::sync, mask, 0, 0);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(
      cuda_host::warp_exchange(cuda_host::WarpOp::ballot, mask, predicate != 0, 0));
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

// Atomic accesses with an order, as nvcc has them built in. The scope is the whole system here.
enum { __NV_ATOMIC_RELAXED, __NV_ATOMIC_ACQUIRE, __NV_ATOMIC_RELEASE };
enum { __NV_THREAD_SCOPE_SYSTEM };
template <class T>
T __nv_atomic_load_n(T* at, int order, int) {
  return order == __NV_ATOMIC_ACQUIRE ? __atomic_load_n(at, __ATOMIC_ACQUIRE)
                                      : __atomic_load_n(at, __ATOMIC_RELAXED);
}
template <class T>
void __nv_atomic_store_n(T* at, T value, int order, int) {
  if (order == __NV_ATOMIC_RELEASE) return __atomic_store_n(at, value, __ATOMIC_RELEASE);
  __atomic_store_n(at, value, __ATOMIC_RELAXED);
}

// Lanes are in segments of `width`; a source outside the own segment means the own value.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int segment = cuda_host::lane() & ~(width - 1);
  return cuda_host::shuffle(mask, value, segment + (source & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const int own = cuda_host::lane(), from = own ^ bits;
  return cuda_host::shuffle(mask, value, from < (own & ~(width - 1)) + width ? from : own);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int own = cuda_host::lane(), from = own + static_cast<int>(delta);
  return cuda_host::shuffle(mask, value, from < (own & ~(width - 1)) + width ? from : own);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int own = cuda_host::lane(), from = own - static_cast<int>(delta);
  return cuda_host::shuffle(mask, value, from >= (own & ~(width - 1)) ? from : own);
}

// The types that CUDA has, and no others.
#define CUDA_HOST_ATOMIC(T)                                             \
  inline T atomicAdd(T* at, T value) {                                  \
    return cuda_host::exchange(at, [=](T now) { return now + value; }); \
  }
#define CUDA_HOST_INTEGER_ATOMIC(T)                                                       \
  CUDA_HOST_ATOMIC(T)                                                                     \
  inline T atomicMax(T* at, T value) {                                                    \
    return cuda_host::exchange(at, [=](T now) { return now < value ? value : now; });     \
  }                                                                                       \
  inline T atomicMin(T* at, T value) {                                                    \
    return cuda_host::exchange(at, [=](T now) { return value < now ? value : now; });     \
  }                                                                                       \
  inline T atomicExch(T* at, T value) {                                                   \
    return cuda_host::exchange(at, [=](T) { return value; });                             \
  }                                                                                       \
  inline T atomicCAS(T* at, T expected, T value) {                                        \
    return cuda_host::exchange(at, [=](T now) { return now == expected ? value : now; }); \
  }
CUDA_HOST_INTEGER_ATOMIC(int)
CUDA_HOST_INTEGER_ATOMIC(unsigned)
CUDA_HOST_INTEGER_ATOMIC(unsigned long long)
CUDA_HOST_ATOMIC(float)
CUDA_HOST_ATOMIC(double)
#undef CUDA_HOST_INTEGER_ATOMIC
#undef CUDA_HOST_ATOMIC
inline float atomicExch(float* at, float value) {
  return cuda_host::exchange(at, [=](float) { return value; });
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
template <class T>
T __ldg(const T* at) {
  return *at;
}

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline void sincospi(double x, double* sine, double* cosine) {
  const double turn = std::fmod(x, 2.0) * 3.14159265358979323846;
  *sine = std::sin(turn);
  *cosine = std::cos(turn);
}
inline void sincospif(float x, float* sine, float* cosine) {
  double s, c;
  sincospi(static_cast<double>(x), &s, &c);
  *sine = static_cast<float>(s);
  *cosine = static_cast<float>(c);
}
// In memory: what is read from there, no compiler makes one with a sum.
inline float __fmul_rn(float x, float y) {
  const volatile float product = x * y;
  return product;
}
inline double __dmul_rn(double x, double y) {
  const volatile double product = x * y;
  return product;
}
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
