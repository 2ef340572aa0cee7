// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/attention.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/dropout.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/pad.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/attention.h>

#include <cmath>

namespace peal::nn {
namespace {

Tensor glorot(std::int64_t out, std::int64_t in) {
  return init::uniform({out, in}, std::sqrt(6.0 / static_cast<double>(out + in)));
}

// [B, T, heads D] as [B, heads, T, D], and back.
Tensor by_heads(const Tensor& x, std::int64_t width) {
  return permute(reshape(x, {x.size(0), x.size(1), x.size(2) / width, width}), {0, 2, 1, 3});
}
Tensor side_by_side(const Tensor& x) {
  return reshape(permute(x, {0, 2, 1, 3}), {x.size(0), x.size(2), x.size(1) * x.size(3)});
}

// What is added to the scores for a mask of either kind.
Tensor additive(const Tensor& mask, DType dtype) {
  if (mask.dtype() != DType::boolean) return cast(mask, dtype);
  const auto number = [&](double value) { return full({}, value, dtype, mask.device()); };
  return where(mask, number(-INFINITY), number(0));
}

void check_mask(const char* what, const Tensor& mask) {
  PEAL_CHECK(mask.dtype() == DType::boolean || is_floating(mask.dtype()),
             "MultiheadAttention: ", what, ": expected bool or a floating type, got ", mask.dtype(),
             " ", mask.shape());
}

// Both masks as one, for scores [B, heads, T, S]: as scaled_dot_product_attention takes them.
Tensor joined_masks(const AttentionMasks& masks, const Shape& scores, bool causal, DType dtype,
                    Device device) {
  const std::int64_t batch = scores[0], heads = scores[1], t = scores[2], s = scores[3];
  Tensors all;  // true is hidden, or numbers
  if (masks.attn_mask.defined()) {
    const Tensor& mask = masks.attn_mask;
    check_mask("attn_mask", mask);
    const bool of_each = mask.shape() == Shape{batch * heads, t, s};
    PEAL_CHECK(of_each || mask.shape() == Shape({t, s}),
               "MultiheadAttention: expected an attn_mask [", t, ", ", s, "] or [", batch * heads,
               ", ", t, ", ", s, "], got shape ", mask.shape());
    all.push_back(of_each ? reshape(mask, {batch, heads, t, s}) : mask);
  }
  if (masks.key_padding_mask.defined()) {
    const Tensor& mask = masks.key_padding_mask;
    check_mask("key_padding_mask", mask);
    PEAL_CHECK(mask.shape() == Shape({batch, s}),
               "MultiheadAttention: expected a key_padding_mask [", batch, ", ", s, "], got shape ",
               mask.shape());
    all.push_back(reshape(mask, {batch, 1, 1, s}));
  }
  if (causal) {
    all.push_back(gt(arange(s, DType::i64, device), unsqueeze(arange(t, DType::i64, device), 1)));
  }
  bool numbers = false;
  for (const Tensor& mask : all) numbers = numbers || mask.dtype() != DType::boolean;
  Tensor joined;
  for (const Tensor& mask : all) {
    const Tensor each = numbers ? additive(mask, dtype) : mask;
    if (!joined.defined()) {
      joined = each;
    } else {
      joined = numbers ? joined + each : logical_or(joined, each);
    }
  }
  return joined.defined() && !numbers ? logical_not(joined) : joined;
}

}  // namespace

MultiheadAttention::MultiheadAttention(std::int64_t width, std::int64_t heads,
                                       const AttentionSettings& settings)
    : out_proj(width, width, settings.bias), heads_(heads), settings_(settings) {
  PEAL_CHECK(heads > 0 && width % heads == 0, "MultiheadAttention: ", heads,
             " heads do not divide a width of ", width);
  const std::int64_t kv_heads = settings.kv_heads.value_or(heads), kv = kv_heads * (width / heads);
  PEAL_CHECK(kv_heads > 0 && heads % kv_heads == 0, "MultiheadAttention: ", kv_heads,
             " heads of keys and values do not divide ", heads, " heads");
  PEAL_CHECK(settings.dropout >= 0 && settings.dropout <= 1,
             "MultiheadAttention: expected a dropout in [0, 1], got ", settings.dropout);
  if (settings.kdim || settings.vdim || kv_heads != heads) {
    q_proj_weight = add_parameter("q_proj_weight", glorot(width, width));
    k_proj_weight = add_parameter("k_proj_weight", glorot(kv, settings.kdim.value_or(width)));
    v_proj_weight = add_parameter("v_proj_weight", glorot(kv, settings.vdim.value_or(width)));
  } else {
    in_proj_weight = add_parameter("in_proj_weight", glorot(3 * width, width));
  }
  if (settings.bias) {
    in_proj_bias = add_parameter("in_proj_bias", zeros({width + 2 * kv}));
    out_proj.bias.zero_();
  }
  out_proj = add("out_proj", out_proj);
}

// Whether all heads are alike, as the fused ops take them.
bool MultiheadAttention::plain() const {
  return in_proj_weight.defined() && !settings_.add_zero_attn;
}

MultiheadAttention::Projected MultiheadAttention::projected(const Tensor& queries,
                                                            const Tensor& keys,
                                                            const Tensor& values) const {
  const std::int64_t width = out_proj.weight.size(0);
  if (in_proj_weight.defined() && queries.same_as(keys) && queries.same_as(values)) {
    const Tensors all = split(linear(queries, in_proj_weight, in_proj_bias), width, -1);
    return {all[0], all[1], all[2]};
  }
  const Tensors weights = in_proj_weight.defined()
                              ? Tensors(split(in_proj_weight, width))
                              : Tensors{q_proj_weight, k_proj_weight, v_proj_weight};
  const Tensors biases =
      in_proj_bias.defined()
          ? Tensors(split(in_proj_bias, {width, weights[1].size(0), weights[2].size(0)}))
          : Tensors(3);
  return {linear(queries, weights[0], biases[0]), linear(keys, weights[1], biases[1]),
          linear(values, weights[2], biases[2])};
}

Tensor MultiheadAttention::forward(const Tensor& x) { return attend(x, x, x); }

Tensor MultiheadAttention::attend(const Tensor& queries, const Tensor& keys, const Tensor& values) {
  return attend_masked(queries, keys, values, {}).output;
}

// Of batches first. REQUIRES: plain().
Tensor MultiheadAttention::fused(const Tensor& queries, const Tensor& keys, const Tensor& values,
                                 bool causal) {
  const double dropped = training() ? settings_.dropout : 0;
  if (queries.same_as(keys) && queries.same_as(values)) {
    return self_attention(linear(queries, in_proj_weight, in_proj_bias), heads_, causal, dropped);
  }
  const auto [q, k, v] = projected(queries, keys, values);
  return scaled_dot_product_attention(q, k, v, heads_, causal, dropped);
}

Attended MultiheadAttention::attend_masked(const Tensor& queries, const Tensor& keys,
                                           const Tensor& values, const AttentionMasks& masks) {
  const auto turned = [&](const Tensor& x) {
    return settings_.batch_first ? x : transpose(x, 0, 1);
  };
  PEAL_CHECK(
      queries.dim() == 3 && keys.dim() == 3 && values.dim() == 3,
      "MultiheadAttention: expected queries, keys and values of three dimensions, got shapes ",
      queries.shape(), ", ", keys.shape(), " and ", values.shape());
  const Tensor tq = turned(queries), tk = keys.same_as(queries) ? tq : turned(keys);
  const Tensor tv = values.same_as(keys) ? tk : turned(values);
  const bool causal = settings_.causal || masks.is_causal;
  const bool masked = masks.attn_mask.defined() || masks.key_padding_mask.defined();
  if (plain() && !masked && !masks.need_weights) {
    return {turned(out_proj(fused(tq, tk, tv, causal))), {}};
  }
  const auto [q, k, v] = projected(tq, tk, tv);
  const std::int64_t width = out_proj.weight.size(0) / heads_;
  const Shape scores{q.size(0), heads_, q.size(1), k.size(1)};
  AttentionOptions options{.attn_mask = joined_masks(masks, scores, causal, q.dtype(), q.device()),
                           .dropout_p = training() ? settings_.dropout : 0,
                           .enable_gqa = k.size(2) != q.size(2)};
  Tensor all_keys = k, all_values = v;
  if (settings_.add_zero_attn) {
    all_keys = pad(k, {0, 0, 0, 1});
    all_values = pad(v, {0, 0, 0, 1});
    if (options.attn_mask.defined()) {
      const bool takes_part = options.attn_mask.dtype() == DType::boolean;
      options.attn_mask = pad(options.attn_mask, {0, 1}, PadMode::constant, takes_part ? 1 : 0);
    }
  }
  const Tensor hq = by_heads(q, width), hk = by_heads(all_keys, width),
               hv = by_heads(all_values, width);
  if (!masks.need_weights) {
    const Tensor y = side_by_side(scaled_dot_product_attention(hq, hk, hv, options));
    return {turned(out_proj(y)), {}};
  }
  const Tensor p = dropout(attention_probabilities(hq, hk, options), options.dropout_p);
  const std::int64_t repeated = heads_ / hv.size(1);
  Tensor each_value = hv;
  if (repeated > 1) {  // each head of values for several of queries
    Tensors heads;
    for (std::int64_t h = 0; h < heads_; ++h) heads.push_back(select(hv, 1, h / repeated));
    each_value = stack(heads, 1);
  }
  const Tensor y = side_by_side(matmul(cast(p, hv.dtype()), each_value));
  return {turned(out_proj(y)), masks.average_attn_weights ? mean(p, {1}) : p};
}

}  // namespace peal::nn
