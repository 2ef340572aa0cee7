// SPDX-License-Identifier: Apache-2.0
// Reductions among the threads of a warp and of a block: all threads of it call them together, and
// all get the result. The order is that of a butterfly, the same at each run, so results are equal
// to the last bit. Blocks are whole warps.
#pragma once

#include <peal/autograd/kernels/dispatch.h>

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace peal::cuda {

inline constexpr int warp = 32;
inline constexpr unsigned whole_warp = 0xffffffffu;

// What sums of T are made in: f32 for low precision, i64 for integers.
template <class T>
using summed = std::conditional_t<std::is_integral_v<T>, std::int64_t, functor::computed<T>>;

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
// A NaN loses: where it counts, what is done with the elements finds it.
struct Larger {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b > a ? b : a;
  }
};

// The value of the thread whose lane differs in the bits of `mask`.
template <class T>
__device__ T from_lane(T value, int mask) {
  return __shfl_xor_sync(whole_warp, value, mask);
}

// Two sums at once.
template <class C>
struct Pair {
  C first, second;
};
template <class C>
__device__ Pair<C> operator+(Pair<C> a, Pair<C> b) {
  return {a.first + b.first, a.second + b.second};
}
template <class C>
__device__ Pair<C> from_lane(Pair<C> value, int mask) {
  return {from_lane(value.first, mask), from_lane(value.second, mask)};
}

// An element and its place, for argmax and argmin.
template <class C>
struct Best {
  C value;
  std::int64_t at;  // -1: none
};
template <class C>
__device__ Best<C> from_lane(Best<C> best, int mask) {
  return {from_lane(best.value, mask), from_lane(best.at, mask)};
}

// Over `lanes` neighbours (a power of two), or over the warp.
template <class T, class Op>
__device__ T warp_reduce(T value, Op op, int lanes = warp) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) value = op(value, from_lane(value, mask));
  return value;
}

// Over the block; `none` is what changes nothing.
template <class T, class Op>
__device__ T block_reduce(T value, Op op, T none) {
  __shared__ T parts[warp];
  const int lane = static_cast<int>(threadIdx.x) % warp,
            mine = static_cast<int>(threadIdx.x) / warp;
  const int warps = static_cast<int>(blockDim.x) / warp;
  value = warp_reduce(value, op);
  __syncthreads();  // parts may still be read from the last time
  if (lane == 0) parts[mine] = value;
  __syncthreads();
  return warp_reduce(lane < warps ? parts[lane] : none, op);
}

// Over the block, or over neighbouring lanes where there are fewer.
template <class T, class Op>
__device__ T group_reduce(T value, Op op, T none, int threads) {
  return threads > warp ? block_reduce(value, op, none) : warp_reduce(value, op, threads);
}

}  // namespace peal::cuda
