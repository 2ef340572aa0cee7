// SPDX-License-Identifier: Apache-2.0
// MultiheadAttention: projections around scaled_dot_product_attention, batch first. Thread safety:
// as of Module.
#pragma once

#include <peal/nn/layers/linear.h>
#include <peal/nn/module.h>

namespace peal::nn {

struct AttentionSettings {
  bool bias = true;
  bool causal = false;  // query i sees the keys 0..i
};

class MultiheadAttention : public Module {
 public:
  // in_proj_weight [3 width, width], of queries, keys and values one below the other, uniform in
  // +-sqrt(6 / (4 width)) (Glorot and Bengio, 2010); in_proj_bias [3 width] zero; out_proj a Linear
  // with a bias of zero. REQUIRES: heads divides width.
  MultiheadAttention(std::int64_t width, std::int64_t heads,
                     const AttentionSettings& settings = {});

  // Of x [B, T, width] to itself.
  using Module::operator();
  Tensor forward(const Tensor& x) override;
  // Of queries [B, T, width] to keys and values [B, S, width] -> [B, T, width].
  Tensor operator()(const Tensor& queries, const Tensor& keys, const Tensor& values) {
    return call(&MultiheadAttention::attend, queries, keys, values);
  }
  // The same without this module's hooks: what forward() is to a call with x.
  Tensor attend(const Tensor& queries, const Tensor& keys, const Tensor& values);

  Tensor in_proj_weight, in_proj_bias;  // the bias is undefined where there is none
  Linear out_proj;

 private:
  std::int64_t heads_;
  bool causal_;
};

}  // namespace peal::nn
