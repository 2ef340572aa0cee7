// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/attention.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/attention.h>

#include <cmath>

namespace peal::nn {

MultiheadAttention::MultiheadAttention(std::int64_t width, std::int64_t heads,
                                       const AttentionSettings& settings)
    : out_proj(width, width, settings.bias), heads_(heads), causal_(settings.causal) {
  PEAL_CHECK(heads > 0 && width % heads == 0, "MultiheadAttention: ", heads,
             " heads do not divide a width of ", width);
  const double bound = std::sqrt(6.0 / static_cast<double>(4 * width));
  in_proj_weight = add_parameter("in_proj_weight", init::uniform({3 * width, width}, bound));
  if (settings.bias) {
    in_proj_bias = add_parameter("in_proj_bias", Tensor::zeros({3 * width}));
    out_proj.bias.zero_();
  }
  out_proj = add("out_proj", out_proj);
}

Tensor MultiheadAttention::forward(const Tensor& x) {
  return out_proj(self_attention(linear(x, in_proj_weight, in_proj_bias), heads_, causal_));
}

Tensor MultiheadAttention::attend(const Tensor& queries, const Tensor& keys, const Tensor& values) {
  const std::int64_t width = out_proj.weight.size(0);
  const Tensors weights = split(in_proj_weight, width);
  const Tensors biases = in_proj_bias.defined() ? split(in_proj_bias, width) : Tensors(3);
  return out_proj(scaled_dot_product_attention(
      linear(queries, weights[0], biases[0]), linear(keys, weights[1], biases[1]),
      linear(values, weights[2], biases[2]), heads_, causal_));
}

}  // namespace peal::nn
