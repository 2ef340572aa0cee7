// SPDX-License-Identifier: Apache-2.0
// Products of bf16 by the CPU's own instructions (AVX512_BF16, AMX), through oneDNN or by loops of
// our own, with sums in f32. Each returns false, and has done nothing, where it does not serve the
// operands or the CPU has none that are worth it; then they are computed in f32 (widening.h). Which
// is right for a CPU is decided once, so forward and backward may differ for one convolution only
// where oneDNN lacks one of them. Arguments as in families.def. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/kernels/table.h>

namespace peal::cpu {

// Whether the CPU does so, faster than in f32, and PEAL_CPU_LEVEL does not ask for less than
// AVX-512. Intel's cores that have AMX have AVX512_BF16 beside it, at about half the rate of f32: a
// virtual machine that hides AMX leaves just that (docs/decisions/0010). PEAL_CPU_LEVEL=avx512
// takes it.
bool multiplies_bf16();
// Whether by AVX512_BF16 alone: AMX multiplies so much faster that fewer multiplications do not pay
// for what saves them.
bool multiplies_bf16_in_pairs();

bool matmul_bf16(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a,
                 bool transpose_b, const Tensor& bias);
bool batched_matmul_bf16(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a,
                         bool transpose_b);

// With AVX-512 all convolutions of bf16: where f32 is faster, that is what images are arranged in,
// and results are rounded as they are put back.
bool conv2d_bf16(const Conv2dGeometry& geometry, const Tensor& y, const Tensor& x,
                 const Tensor& weight, const Tensor& bias);
bool conv2d_backward_bf16(const Conv2dGeometry& geometry, const Tensor& dx, const Tensor& dweight,
                          const Tensor& dbias, const Tensor& dy, const Tensor& x,
                          const Tensor& weight);

// By pairs, where there are an even number of keys and of elements of a head, and shares are kept.
bool attention_bf16(const AttentionGeometry& geometry, const AttentionResult& result,
                    const Tensor& q, const Tensor& k, const Tensor& v);
bool attention_backward_bf16(const AttentionGeometry& geometry, const Tensor& dq, const Tensor& dk,
                             const Tensor& dv, const Tensor& dy, const AttentionResult& result,
                             const Tensor& q, const Tensor& k, const Tensor& v);
bool self_attention_bf16(const AttentionGeometry& geometry, const AttentionResult& result,
                         const Tensor& qkv);
bool self_attention_backward_bf16(const AttentionGeometry& geometry, const Tensor& dqkv,
                                  const Tensor& dy, const AttentionResult& result,
                                  const Tensor& qkv);

}  // namespace peal::cpu
