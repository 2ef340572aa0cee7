// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/diagonal.h>
#include <peal/autograd/ops/factory.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/transformer.h>
#include <peal/nn/parameter_vector.h>

#include <limits>
#include <string_view>

namespace peal::nn {
namespace {

AttentionSettings attention_of(const TransformerSettings& settings) {
  return {.bias = settings.bias, .dropout = settings.dropout, .batch_first = settings.batch_first};
}

LayerNorm norm_of(std::int64_t width, const TransformerSettings& settings) {
  return LayerNorm(width, {.eps = settings.layer_norm_eps, .bias = settings.bias});
}

// PyTorch's layers are cloned, which takes no random numbers.
template <class Layer>
Layer copy_of(const Layer& layer, std::int64_t d_model, std::int64_t nhead,
              const TransformerSettings& settings) {
  const Generator before = context().generator;
  Layer copy = deepcopy(layer, [&] { return Layer(d_model, nhead, settings); });
  context().generator = before;
  return copy;
}

template <class Layer>
ModuleList copies_of(const char* who, const Layer& layer, std::int64_t count) {
  PEAL_CHECK(count >= 0, who, ": expected num_layers of at least 0, got ", count);
  ModuleList all;
  for (std::int64_t i = 0; i < count; ++i) all.append(layer.copy());
  return all;
}

// x between its layer and the residual connection, with the normalisation where settings say.
template <class F>
Tensor with_residual(const Tensor& x, LayerNorm& norm, bool norm_first, F&& f) {
  return norm_first ? x + f(norm(x)) : norm(x + f(x));
}

template <class Layer>
Tensor fed_forward(Layer& layer, const TransformerActivation& activation, const Tensor& x) {
  return layer.linear2(layer.dropout(activation(layer.linear1(x))));
}

}  // namespace

TransformerActivation::TransformerActivation(const char* name) {
  if (std::string_view(name) == "relu") {
    function_ = [](const Tensor& x) { return relu(x); };
  } else {
    PEAL_CHECK(std::string_view(name) == "gelu",
               "transformer layer: expected the activation relu or gelu, or a function, got ",
               name);
    function_ = [](const Tensor& x) { return gelu(x); };
  }
}

TransformerEncoderLayer::TransformerEncoderLayer(std::int64_t d_model, std::int64_t nhead,
                                                 const TransformerSettings& settings)
    : self_attn(add("self_attn", MultiheadAttention(d_model, nhead, attention_of(settings)))),
      linear1(add("linear1", Linear(d_model, settings.dim_feedforward, settings.bias))),
      dropout(add("dropout", Dropout(settings.dropout))),
      linear2(add("linear2", Linear(settings.dim_feedforward, d_model, settings.bias))),
      norm1(add("norm1", norm_of(d_model, settings))),
      norm2(add("norm2", norm_of(d_model, settings))),
      dropout1(add("dropout1", Dropout(settings.dropout))),
      dropout2(add("dropout2", Dropout(settings.dropout))),
      d_model_(d_model),
      nhead_(nhead),
      settings_(settings) {}

TransformerEncoderLayer TransformerEncoderLayer::copy() const {
  return copy_of(*this, d_model_, nhead_, settings_);
}

Tensor TransformerEncoderLayer::encode(const Tensor& src, const EncoderMasks& masks) {
  const bool first = settings_.norm_first;
  const Tensor x = with_residual(src, norm1, first, [&](const Tensor& in) {
    return dropout1(self_attn(in, in, in,
                              {.attn_mask = masks.src_mask,
                               .key_padding_mask = masks.src_key_padding_mask,
                               .is_causal = masks.is_causal})
                        .output);
  });
  return with_residual(x, norm2, first, [&](const Tensor& in) {
    return dropout2(fed_forward(*this, settings_.activation, in));
  });
}

TransformerDecoderLayer::TransformerDecoderLayer(std::int64_t d_model, std::int64_t nhead,
                                                 const TransformerSettings& settings)
    : self_attn(add("self_attn", MultiheadAttention(d_model, nhead, attention_of(settings)))),
      multihead_attn(
          add("multihead_attn", MultiheadAttention(d_model, nhead, attention_of(settings)))),
      linear1(add("linear1", Linear(d_model, settings.dim_feedforward, settings.bias))),
      dropout(add("dropout", Dropout(settings.dropout))),
      linear2(add("linear2", Linear(settings.dim_feedforward, d_model, settings.bias))),
      norm1(add("norm1", norm_of(d_model, settings))),
      norm2(add("norm2", norm_of(d_model, settings))),
      norm3(add("norm3", norm_of(d_model, settings))),
      dropout1(add("dropout1", Dropout(settings.dropout))),
      dropout2(add("dropout2", Dropout(settings.dropout))),
      dropout3(add("dropout3", Dropout(settings.dropout))),
      d_model_(d_model),
      nhead_(nhead),
      settings_(settings) {}

TransformerDecoderLayer TransformerDecoderLayer::copy() const {
  return copy_of(*this, d_model_, nhead_, settings_);
}

Tensor TransformerDecoderLayer::decode(const Tensor& tgt, const Tensor& memory,
                                       const DecoderMasks& masks) {
  const bool first = settings_.norm_first;
  Tensor x = with_residual(tgt, norm1, first, [&](const Tensor& in) {
    return dropout1(self_attn(in, in, in,
                              {.attn_mask = masks.tgt_mask,
                               .key_padding_mask = masks.tgt_key_padding_mask,
                               .is_causal = masks.tgt_is_causal})
                        .output);
  });
  x = with_residual(x, norm2, first, [&](const Tensor& in) {
    return dropout2(multihead_attn(in, memory, memory,
                                   {.attn_mask = masks.memory_mask,
                                    .key_padding_mask = masks.memory_key_padding_mask,
                                    .is_causal = masks.memory_is_causal})
                        .output);
  });
  return with_residual(x, norm3, first, [&](const Tensor& in) {
    return dropout3(fed_forward(*this, settings_.activation, in));
  });
}

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& layer,
                                       std::int64_t num_layers, const std::optional<Module>& norm)
    : layers(add("layers", copies_of("TransformerEncoder", layer, num_layers))) {
  if (norm) norm_ = add("norm", *norm);
}

Tensor TransformerEncoder::encode(const Tensor& src, const EncoderMasks& masks) {
  Tensor x = src;
  for (Module& layer : layers) x = layer.call(&TransformerEncoderLayer::encode, x, masks);
  return norm_ ? (*norm_)(x) : x;
}

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& layer,
                                       std::int64_t num_layers, const std::optional<Module>& norm)
    : layers(add("layers", copies_of("TransformerDecoder", layer, num_layers))) {
  if (norm) norm_ = add("norm", *norm);
}

Tensor TransformerDecoder::decode(const Tensor& tgt, const Tensor& memory,
                                  const DecoderMasks& masks) {
  Tensor x = tgt;
  for (Module& layer : layers) x = layer.call(&TransformerDecoderLayer::decode, x, memory, masks);
  return norm_ ? (*norm_)(x) : x;
}

Transformer::Transformer(std::int64_t d_model, std::int64_t nhead, std::int64_t num_encoder_layers,
                         std::int64_t num_decoder_layers, const TransformerSettings& settings)
    : encoder(add("encoder", TransformerEncoder(TransformerEncoderLayer(d_model, nhead, settings),
                                                num_encoder_layers, norm_of(d_model, settings)))),
      decoder(add("decoder", TransformerDecoder(TransformerDecoderLayer(d_model, nhead, settings),
                                                num_decoder_layers, norm_of(d_model, settings)))),
      batch_first_(settings.batch_first) {
  for (const Tensor& parameter : parameters()) {
    if (parameter.dim() > 1) init::xavier_uniform_(parameter);
  }
}

Tensor Transformer::transform(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks) {
  const int batch = batch_first_ ? 0 : 1;
  PEAL_CHECK(src.dim() == 3 && tgt.dim() == 3 && src.size(batch) == tgt.size(batch) &&
                 src.size(2) == tgt.size(2),
             "Transformer: expected src and tgt ",
             batch_first_ ? "[B, S, width] and [B, T, width]" : "[S, B, width] and [T, B, width]",
             ", got shapes ", src.shape(), " and ", tgt.shape());
  const Tensor memory = encoder(src, {.src_mask = masks.src_mask,
                                      .src_key_padding_mask = masks.src_key_padding_mask,
                                      .is_causal = masks.src_is_causal});
  return decoder(tgt, memory,
                 {.tgt_mask = masks.tgt_mask,
                  .memory_mask = masks.memory_mask,
                  .tgt_key_padding_mask = masks.tgt_key_padding_mask,
                  .memory_key_padding_mask = masks.memory_key_padding_mask,
                  .tgt_is_causal = masks.tgt_is_causal,
                  .memory_is_causal = masks.memory_is_causal});
}

Tensor Transformer::generate_square_subsequent_mask(std::int64_t size, DType dtype, Device device) {
  return triu(full({size, size}, -std::numeric_limits<double>::infinity(), dtype, device), 1);
}

}  // namespace peal::nn
