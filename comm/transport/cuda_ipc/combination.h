// SPDX-License-Identifier: Apache-2.0
// Combination: a reduction of many sources in one pass, by the threads of a block: the elements of
// all ranks, in their order, in f32 for f16 and bf16, and rounded once, written to all targets. So
// all ranks get the same bits. A target may be a source: each element is read before it is written.
// Thread safety: a __syncthreads() or a meeting must lie between it and who reads.
#pragma once

#include <peal/autograd/core/half.h>
#include <peal/comm/reduce/combine.h>
#include <peal/comm/reduce/reduce_op.h>
#include <peal/comm/transport/cuda_ipc/window.h>

#include <cuda_runtime.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace peal::comm::ipc {

template <class T>
struct alignas(16) Pack {
  static constexpr int width = 16 / sizeof(T);
  T at[width];
};

template <class T>
constexpr bool narrow = std::same_as<T, Half> || std::same_as<T, BFloat16>;
template <class T>
using Computed = std::conditional_t<narrow<T>, float, T>;

// Never one with the sum that follows (FMA): a factor has the bits that it has on the CPU, whatever
// the place of its element.
__device__ inline float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double rounded_product(double a, double b) { return __dmul_rn(a, b); }

// Elements of all ranks, made one: from[0] (+) from[1] (+) ..., written to each of `to`.
template <class T>
struct Combination {
  using C = Computed<T>;
  using F = std::conditional_t<std::same_as<C, float>, float, double>;

  ReduceOp op;
  F before;  // what elements are multiplied by; exact where it is 1
  int sources, targets;
  std::int64_t count;
  const T* from[most_ranks];
  T* to[most_ranks];

  __device__ C first(T value) const {
    const C wide = static_cast<C>(value);
    if constexpr (std::is_floating_point_v<C>) {
      return rounded_product(wide, before);
    } else if constexpr (std::same_as<T, bool>) {
      return wide;
    } else {
      return op == ReduceOp::premul_sum ? static_cast<C>(static_cast<F>(wide) * before) : wide;
    }
  }

  __device__ T last(C value) const {
    if constexpr (std::is_floating_point_v<C>) {
      return static_cast<T>(op == ReduceOp::avg ? value / static_cast<C>(sources) : value);
    } else if constexpr (std::same_as<T, bool>) {
      return value;
    } else {
      return op == ReduceOp::avg ? static_cast<T>(static_cast<std::int64_t>(value) / sources)
                                 : value;
    }
  }

  __device__ bool aligned() const {
    std::uintptr_t bits = 0;
    for (int i = 0; i < sources; ++i) bits |= reinterpret_cast<std::uintptr_t>(from[i]);
    for (int i = 0; i < targets; ++i) bits |= reinterpret_cast<std::uintptr_t>(to[i]);
    return bits % 16 == 0;
  }

  template <class Combine>
  __device__ void operator()(Combine combine) const {
    using P = Pack<T>;
    // Packs on their way for a thread: many in what gradients are reduced with.
    constexpr int at_once = std::is_floating_point_v<C> && std::same_as<Combine, Added> ? 4 : 1;
    const std::int64_t whole = aligned() ? count / P::width : 0, step = blockDim.x;
    for (std::int64_t i = threadIdx.x; i < whole; i += at_once * step) {
      C sum[at_once][P::width] = {};
      for (int s = 0; s < sources; ++s) {
        P packs[at_once];
        for (int k = 0; k < at_once; ++k) {
          if (i + k * step < whole) packs[k] = reinterpret_cast<const P*>(from[s])[i + k * step];
        }
        for (int k = 0; k < at_once; ++k) {
          if (i + k * step >= whole) continue;
          for (int e = 0; e < P::width; ++e) {
            const C value = first(packs[k].at[e]);
            sum[k][e] = s == 0 ? value : combine(sum[k][e], value);
          }
        }
      }
      for (int k = 0; k < at_once; ++k) {
        if (i + k * step >= whole) continue;
        P result;
        for (int e = 0; e < P::width; ++e) result.at[e] = last(sum[k][e]);
        for (int t = 0; t < targets; ++t) reinterpret_cast<P*>(to[t])[i + k * step] = result;
      }
    }
    for (std::int64_t i = whole * P::width + threadIdx.x; i < count; i += step) {
      C sum = first(from[0][i]);
      for (int s = 1; s < sources; ++s) sum = combine(sum, first(from[s][i]));
      for (int t = 0; t < targets; ++t) to[t][i] = last(sum);
    }
  }
};

}  // namespace peal::comm::ipc
