// SPDX-License-Identifier: Apache-2.0
// Attention as one op (Vaswani et al., "Attention is all you need", 2017, section 3.2).
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <optional>

namespace peal {

// softmax(q k^T / sqrt(D)) v for each head: q [B, T, heads D], k and v [B, S, heads D] -> [B, T,
// heads D]. causal: query i sees the keys 0..i. Keeps for backward the result and a number or two
// for each query and head, from which the probabilities are made again; so to write over the
// result's elements before backward, under NoGrad or through detach(), is an error there. But it
// keeps the probabilities themselves on a CPU for up to 384 keys without a mask and dropout, and on
// CUDA for heads more than 128 wide (64 in f64). With dropout of the probabilities (dropout.h), on
// CUDA, whole scores [B, heads, T, S] are made, by several ops; and so they are where a gradient is
// to be differentiated in turn.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    std::int64_t heads, bool causal = false, double dropout = 0);

// Of queries, keys and values side by side, as one linear layer gives them: qkv [B, T, 3
// heads D] -> [B, T, heads D].
Tensor self_attention(const Tensor& qkv, std::int64_t heads, bool causal = false,
                      double dropout = 0);

struct AttentionOptions {
  // [..., L, S], or what stretches to it. Of bool: true takes part. Floating: added to the scores.
  Tensor attn_mask{};
  double dropout_p = 0;           // of the probabilities
  bool is_causal = false;         // query i sees the keys 0..i; not beside a mask
  std::optional<double> scale{};  // none: 1 / sqrt(E)
  bool enable_gqa = false;        // k and v may have fewer heads, each for as many of q's in a row
};

// PyTorch's form: q [..., L, E], k [..., S, E], v [..., S, V] -> [..., L, V], heads among the
// leading dimensions, last of them for enable_gqa. A query that sees no key gets zeros. It is
// the op above, but where V is not E, leading dimensions are stretched or a mask wants a gradient,
// and on CUDA with a mask or dropout: there whole scores are made.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});
// The probabilities [..., L, S] that it weighs v with, before dropout.
Tensor attention_probabilities(const Tensor& q, const Tensor& k,
                               const AttentionOptions& options = {});

}  // namespace peal
