// SPDX-License-Identifier: Apache-2.0
// MultiheadAttention: projections around scaled_dot_product_attention. Sequences come first unless
// told otherwise, as in PyTorch: [T, B, width]. Thread safety: as of Module.
#pragma once

#include <peal/nn/layers/linear.h>
#include <peal/nn/module.h>

#include <optional>
#include <tuple>

namespace peal::nn {

struct AttentionSettings {
  bool bias = true;
  bool causal = false;                         // query i sees the keys 0..i
  double dropout = 0;                          // of the probabilities, while training
  std::optional<std::int64_t> kdim{}, vdim{};  // widths of keys and values, where not the queries'
  std::optional<std::int64_t> kv_heads{};      // fewer heads of keys and values, each for several
  bool add_zero_attn = false;                  // a key and value of zeros more
  bool batch_first = false;  // queries, keys, values and outputs are [B, T, width]
};

struct AttentionMasks {
  // [T, S] or [B heads, T, S]. Of bool: true is HIDDEN, as in PyTorch's module, and the opposite of
  // scaled_dot_product_attention's. Floating: added to the scores.
  Tensor attn_mask{};
  Tensor key_padding_mask{};  // [B, S], likewise: true is no key
  bool is_causal = false;     // of this call: query i sees the keys 0..i, by itself or beside masks
  bool need_weights = false;
  bool average_attn_weights = true;  // over the heads
};

// weights: [B, T, S], or [B, heads, T, S] not averaged; undefined unless they are needed.
struct Attended {
  Tensor output, weights;
  auto fields() { return std::tie(output, weights); }
};

class MultiheadAttention : public Module {
 public:
  // in_proj_weight [3 width, width], of queries, keys and values one below the other, uniform in
  // +-sqrt(6 / (4 width)) (Glorot and Bengio, 2010); in_proj_bias [3 width] zero; out_proj a Linear
  // with a bias of zero. With kdim, vdim or kv_heads instead of in_proj_weight q_proj_weight
  // [width, width], k_proj_weight and v_proj_weight [kv_heads width / heads, kdim or vdim], each by
  // its own sizes. REQUIRES: heads divides width, and kv_heads divides heads.
  MultiheadAttention(std::int64_t width, std::int64_t heads,
                     const AttentionSettings& settings = {});

  // Of x [T, B, width] to itself; where batch_first, here and below, of [B, T, width].
  using Module::operator();
  Tensor forward(const Tensor& x) override;
  // Of queries [T, B, width] to keys and values [S, B, width] -> [T, B, width].
  Tensor operator()(const Tensor& queries, const Tensor& keys, const Tensor& values) {
    return call(&MultiheadAttention::attend, queries, keys, values);
  }
  // The same with masks. A query that sees no key gets out_proj's bias (PyTorch: NaN).
  Attended operator()(const Tensor& queries, const Tensor& keys, const Tensor& values,
                      const AttentionMasks& masks) {
    return call(&MultiheadAttention::attend_masked, queries, keys, values, masks);
  }
  // The same without this module's hooks: what forward() is to a call with x.
  Tensor attend(const Tensor& queries, const Tensor& keys, const Tensor& values);
  Attended attend_masked(const Tensor& queries, const Tensor& keys, const Tensor& values,
                         const AttentionMasks& masks);

  // The biases are undefined where there are none, and so is the weight of the other form.
  Tensor in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias;
  Linear out_proj;

 private:
  struct Projected {
    Tensor queries, keys, values;  // [B, T, width], [B, S, kv_heads D]
  };
  Projected projected(const Tensor& queries, const Tensor& keys, const Tensor& values) const;
  bool plain() const;
  Tensor fused(const Tensor& queries, const Tensor& keys, const Tensor& values, bool causal);

  std::int64_t heads_;
  AttentionSettings settings_;
};

}  // namespace peal::nn
