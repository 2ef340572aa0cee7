// SPDX-License-Identifier: Apache-2.0
// The instructions of sm_80 for which CUDA C++ has no plain name: products of small matrices by a
// warp, the loads that lay these out in its registers, and copies to shared memory beside the
// computation. All lanes of a warp call the first two together. On the host they are those of
// tests/cuda_host.
//
// Registers (PTX ISA, "Matrix fragments for mma.m16n8k16"), with g = lane / 4 and t = lane % 4:
//   a [16, 16]   two columns a word: (g, 2t) (g + 8, 2t) (g, 2t + 8) (g + 8, 2t + 8), and the next
//   b [16, 8]    two rows a word: (2t, g) (2t + 8, g), and the next
//   sum [16, 8]  (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1)
#pragma once

#include <peal/autograd/core/half.h>

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#ifndef __CUDACC__
#include <cuda_host_ptx.h>
#endif

namespace peal::cuda {

// Four 8 x 8 matrices of two-byte elements: lane i says where row i % 8 of matrix i / 8 lies, on a
// boundary of 16 bytes in shared memory; out[j] is (g, 2t) and the next of matrix j, or of its
// transpose.
template <bool transposed>
__device__ __forceinline__ void load_matrices(std::uint32_t (&out)[4], const void* row) {
#ifdef __CUDACC__
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at)
                 : "memory");
  }
#else
  cuda_host::load_matrices(out, row, transposed);
#endif
}

// sum += a b, for T = Half or BFloat16.
template <class T>
__device__ __forceinline__ void multiply_add(float (&sum)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
  constexpr bool brain = std::is_same_v<T, BFloat16>;
#ifdef __CUDACC__
  if constexpr (brain) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#else
  cuda_host::multiply_add(brain ? cuda_host::MatrixType::bf16 : cuda_host::MatrixType::f16, sum, a,
                          b0, b1);
#endif
}

// Two elements in a word, the first in its low half, rounded to nearest.
template <class T>
__device__ __forceinline__ std::uint32_t two_of(float first, float second) {
#ifdef __CUDACC__
  std::uint32_t out;
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(second), "f"(first));
  }
  return out;
#else
  return T(first).bits | static_cast<std::uint32_t>(T(second).bits) << 16;
#endif
}

// 2^x, to 2 units in the last place; what is below 2^-126 may become 0.
__device__ __forceinline__ float power_of_two(float x) {
#ifdef __CUDACC__
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
#else
  return exp2f(x);
#endif
}
__device__ __forceinline__ double power_of_two(double x) { return exp2(x); }

// Sixteen bytes from global to shared memory, both on their boundary, of which the first `bytes`
// are read and the others are 0. They are there for this thread after copies_arrive(), and for the
// block after its next barrier.
__device__ __forceinline__ void copy_later(void* to, const void* from, int bytes) {
#ifdef __CUDACC__
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(at), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
#else
  cuda_host::copy_later(to, from, bytes);
#endif
}
__device__ __forceinline__ void copies_arrive() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  cuda_host::copies_arrive();
#endif
}

}  // namespace peal::cuda
