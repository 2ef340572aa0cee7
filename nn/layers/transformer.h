// SPDX-License-Identifier: Apache-2.0
// Transformer: layers of attention and two linear layers, with residual connections and layer
// normalisation, as an encoder, a decoder or both (Vaswani et al., "Attention is all you need",
// 2017, section 3), by PyTorch's names.
//
//   nn::TransformerEncoder encoder(nn::TransformerEncoderLayer(512, 8, {.batch_first = true}), 6);
//   Tensor y = encoder(x, {.src_key_padding_mask = padding});          // x [B, S, 512]
//
// Sequences come first unless told otherwise, as in PyTorch: [S, B, width]. Masks are as in
// AttentionMasks: of bool, true is HIDDEN. is_causal hides the future by itself; PyTorch wants the
// mask beside it. Thread safety: as of Module.
#pragma once

#include <peal/nn/layers/attention.h>
#include <peal/nn/layers/containers.h>
#include <peal/nn/layers/dropout.h>
#include <peal/nn/layers/norm.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

namespace peal::nn {

// What stands between the linear layers: "relu", "gelu", or a function of a tensor without
// parameters.
class TransformerActivation {
 public:
  TransformerActivation(const char* name);  // NOLINT: meant as a conversion
  template <class F>
  requires(!std::same_as<F, TransformerActivation> && !std::derived_from<F, Module> &&
           std::is_invocable_r_v<Tensor, F, const Tensor&>)
      TransformerActivation(F function)  // NOLINT: meant as a conversion
      : function_(std::move(function)) {}
  Tensor operator()(const Tensor& x) const { return function_(x); }

 private:
  std::function<Tensor(const Tensor&)> function_;
};

struct TransformerSettings {
  std::int64_t dim_feedforward = 2048;
  double dropout = 0.1;  // of attention's probabilities, after the activation, of what is added
  TransformerActivation activation = "relu";
  double layer_norm_eps = 1e-5;
  bool batch_first = false;  // what is [S, B, width] below is [B, S, width]
  bool norm_first = false;   // x + f(norm(x)) instead of norm(x + f(x))
  bool bias = true;          // of all linear layers and normalisations
};

struct EncoderMasks {
  Tensor src_mask{}, src_key_padding_mask{};
  bool is_causal = false;
};
struct DecoderMasks {
  Tensor tgt_mask{}, memory_mask{}, tgt_key_padding_mask{}, memory_key_padding_mask{};
  bool tgt_is_causal = false, memory_is_causal = false;
};
struct TransformerMasks {
  Tensor src_mask{}, tgt_mask{}, memory_mask{};
  Tensor src_key_padding_mask{}, tgt_key_padding_mask{}, memory_key_padding_mask{};
  bool src_is_causal = false, tgt_is_causal = false, memory_is_causal = false;
};

// Attention of src to itself, then linear1, activation, linear2. REQUIRES: nhead divides d_model.
class TransformerEncoderLayer : public Module {
 public:
  TransformerEncoderLayer(std::int64_t d_model, std::int64_t nhead,
                          const TransformerSettings& settings = {});

  // src [S, B, d_model] -> [S, B, d_model].
  using Module::operator();
  Tensor forward(const Tensor& src) override { return encode(src, {}); }
  Tensor operator()(const Tensor& src, const EncoderMasks& masks) {
    return call(&TransformerEncoderLayer::encode, src, masks);
  }
  Tensor encode(const Tensor& src, const EncoderMasks& masks);
  // One of its own with the same values; draws nothing.
  TransformerEncoderLayer copy() const;

  MultiheadAttention self_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2;
  Dropout dropout1, dropout2;

 private:
  std::int64_t d_model_, nhead_;
  TransformerSettings settings_;
};

// Attention of tgt to itself, then to memory, then linear1, activation, linear2.
class TransformerDecoderLayer : public Module {
 public:
  TransformerDecoderLayer(std::int64_t d_model, std::int64_t nhead,
                          const TransformerSettings& settings = {});

  // tgt [T, B, d_model], memory [S, B, d_model] -> [T, B, d_model].
  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks = {}) {
    return call(&TransformerDecoderLayer::decode, tgt, memory, masks);
  }
  Tensor decode(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks);
  TransformerDecoderLayer copy() const;

  MultiheadAttention self_attn, multihead_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout1, dropout2, dropout3;

 private:
  std::int64_t d_model_, nhead_;
  TransformerSettings settings_;
};

// Copies of a layer, one after the other: layers.0, layers.1, ...; they begin with the same values,
// as PyTorch's do. Then `norm`, where there is one.
class TransformerEncoder : public Module {
 public:
  TransformerEncoder(const TransformerEncoderLayer& layer, std::int64_t num_layers,
                     const std::optional<Module>& norm = {});

  using Module::operator();
  Tensor forward(const Tensor& src) override { return encode(src, {}); }
  Tensor operator()(const Tensor& src, const EncoderMasks& masks) {
    return call(&TransformerEncoder::encode, src, masks);
  }
  Tensor encode(const Tensor& src, const EncoderMasks& masks);

  ModuleList layers;

 private:
  std::optional<Module> norm_;
};

class TransformerDecoder : public Module {
 public:
  TransformerDecoder(const TransformerDecoderLayer& layer, std::int64_t num_layers,
                     const std::optional<Module>& norm = {});

  Tensor operator()(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks = {}) {
    return call(&TransformerDecoder::decode, tgt, memory, masks);
  }
  Tensor decode(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks);

  ModuleList layers;

 private:
  std::optional<Module> norm_;
};

// Both, each with a LayerNorm at its end. All matrices are uniform by Glorot's rule.
class Transformer : public Module {
 public:
  explicit Transformer(std::int64_t d_model = 512, std::int64_t nhead = 8,
                       std::int64_t num_encoder_layers = 6, std::int64_t num_decoder_layers = 6,
                       const TransformerSettings& settings = {});

  // src [S, B, d_model], tgt [T, B, d_model] -> [T, B, d_model].
  Tensor operator()(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks = {}) {
    return call(&Transformer::transform, src, tgt, masks);
  }
  Tensor transform(const Tensor& src, const Tensor& tgt, const TransformerMasks& masks);
  // [size, size]: -inf above the diagonal, else 0.
  static Tensor generate_square_subsequent_mask(std::int64_t size, DType dtype = DType::f32,
                                                Device device = context().device);

  TransformerEncoder encoder;
  TransformerDecoder decoder;

 private:
  bool batch_first_;
};

}  // namespace peal::nn
