// SPDX-License-Identifier: Apache-2.0
// Attention that never writes its probabilities (Dao, "FlashAttention-2", 2023): forward keeps for
// each query the logarithm of the sum of its exponentials, backward makes the probabilities again
// from it. Both run over tiles of keys (or queries) in shared memory; what lies in the future of a
// whole tile is not read. No result depends on the order of blocks. Thread safety: as of the
// tensors; all is queued.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/geometry.h>

namespace peal::cuda {

// Whether the kernels serve this: widths of a head up to 128, up to 64 in f64.
bool has_fused_attention(const AttentionGeometry& o, DType dtype);

// [B, length, heads width] of a tensor, or the first of several such side by side: from element
// `at` on, tokens `row` elements apart.
struct Tokens {
  const Tensor& data;
  std::int64_t row, at = 0;
};

// `sums` [B, heads, queries] in the type that scores are computed in, becomes the logarithms: to
// the base of 2, for f16 and bf16 natural ones, as cuDNN's are (cudnn_attention.h).
void fused_attention(const AttentionGeometry& o, const Tokens& y, const Tensor& sums,
                     const Tokens& q, const Tokens& k, const Tokens& v);
// Any of dq, dk and dv may be null.
void fused_attention_backward(const AttentionGeometry& o, const Tokens* dq, const Tokens* dk,
                              const Tokens* dv, const Tokens& dy, const Tokens& y,
                              const Tensor& sums, const Tokens& q, const Tokens& k,
                              const Tokens& v);

}  // namespace peal::cuda
