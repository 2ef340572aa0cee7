// SPDX-License-Identifier: Apache-2.0
// GPT-2: a decoder of transformer blocks with layer normalisation first (Radford et al., "Language
// models are unsupervised multitask learners", 2019, section 2.3), with the keys, the
// initialisation and the tied embeddings of GPT2LMHeadModel in Hugging Face's transformers:
// transformer.wte, transformer.wpe, transformer.h.0.ln_1, .attn.c_attn, .attn.c_proj, .ln_2,
// .mlp.c_fc, .mlp.c_proj, transformer.ln_f, lm_head.
//
// Weights of linear layers lie as Linear has them, [out, in], which is nanoGPT's layout; published
// files have them as [in, out], and gpt2_state.h reads and writes those:
//
//   nn::GPT gpt({50257, 768, 12, 12, 1024});             // "gpt2", 124 million parameters
//   gpt.load_state_dict(nn::from_gpt2(load_safetensors("model.safetensors").tensors));
//
// Dropout is of GPT-2's kinds and in its places, and none unless asked for; it was trained with 0.1
// each. That of attention makes whole scores on CUDA, in several ops.
//
// Text is made a token at a time (generate.h), with the keys and values of those before kept in a
// GptCache. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/attention_of_heads.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/checkpoint_wrapper.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/layers/side_by_side.h>
#include <peal/nn/models/gpt2_state.h>

#include <cmath>
#include <cstdint>
#include <typeinfo>
#include <vector>

namespace peal::nn {

struct GptSettings {
  std::int64_t vocabulary = 1000, width = 256, heads = 4, layers = 4, positions = 128;
  GeluApproximation gelu = GeluApproximation::tanh;
  bool tie_word_embeddings = true;  // lm_head has wte's weight
  // Dropout while training: of the embeddings, of attention's probabilities, and of what attention
  // and mlp add.
  double embd_pdrop = 0, attn_pdrop = 0, resid_pdrop = 0;
};

// Keys and values of the tokens that a GPT has seen, a layer each: [B, length, width].
struct GptCache {
  struct Layer {
    Tensor keys, values;
  };
  std::vector<Layer> layers{};
  std::int64_t length = 0;
};

// Attention of each token to itself and those before it: c_attn gives queries, keys and values side
// by side, of all heads or, where c_attn is cut over ranks (parallel/tensor/), of this rank's.
// REQUIRES: heads divides width.
struct GptAttention : Module {
  Linear c_attn, c_proj;
  Dropout resid_dropout;

  GptAttention(std::int64_t width, std::int64_t heads, double attn_pdrop = 0,
               double resid_pdrop = 0)
      : c_attn(add("c_attn", Linear(width, 3 * width))),
        c_proj(add("c_proj", Linear(width, width))),
        resid_dropout(add("resid_dropout", Dropout(resid_pdrop))),
        heads_(heads),
        attn_pdrop_(attn_pdrop) {}

  Tensor forward(const Tensor& x) override { return attend(x, nullptr); }
  // With what was seen before, which then has x, too. REQUIRES: nothing was, or x is one token.
  // Error for cut heads that drop weights of attention.
  Tensor attend(const Tensor& x, GptCache::Layer* seen) {
    const double dropped = training() ? attn_pdrop_ : 0;
    const Tensor qkv = c_attn(x);
    const std::int64_t heads = heads_of(qkv, x.size(-1));
    const auto* const some = dropped > 0 && heads < heads_ ? c_attn.as<SideBySide>() : nullptr;
    if (seen == nullptr && some == nullptr) {
      return resid_dropout(c_proj(self_attention(qkv, heads, true, dropped)));
    }
    const Tensors parts = split(qkv, qkv.size(-1) / 3, -1);
    if (seen == nullptr) {  // of these heads the places that one process drops
      const HeadsOf place{some->share() * heads, heads_};
      return resid_dropout(
          c_proj(attention_of_heads(parts[0], parts[1], parts[2], heads, true, dropped, place)));
    }
    PEAL_CHECK(
        some == nullptr,
        "GptAttention: with a cache, cut heads would drop other weights of attention than in "
        "one process; eval() the model before it makes text");
    const bool first = !seen->keys.defined();
    seen->keys = first ? parts[1] : cat({seen->keys, parts[1]}, 1);
    seen->values = first ? parts[2] : cat({seen->values, parts[2]}, 1);
    return resid_dropout(c_proj(scaled_dot_product_attention(parts[0], seen->keys, seen->values,
                                                             heads, /*causal=*/first, dropped)));
  }

 private:
  std::int64_t heads_of(const Tensor& qkv, std::int64_t width) {
    const auto* const some = qkv.size(-1) == 3 * width ? nullptr : c_attn.as<SideBySide>();
    PEAL_CHECK(some == nullptr || some->parts() == 3,
               "GptAttention: c_attn gives queries, keys and values side by side: expected a cut "
               "with .parts = 3, got ",
               some->parts());
    PEAL_CHECK(heads_ * qkv.size(-1) % (3 * width) == 0, "GptAttention: ", qkv.size(-1),
               " features of ", heads_, " heads of queries, keys and values, ", 3 * width,
               " in all, are no whole number of heads");
    return heads_ * qkv.size(-1) / (3 * width);
  }

  std::int64_t heads_;
  double attn_pdrop_;
};

// c_proj(gelu(c_fc(x))). With gelu by tanh that is one op, unless c_fc or c_proj has hooks or is no
// Linear any more (a class made from Linear is none, and no CheckpointWrapper: its forward is
// called).
struct GptMlp : Module {
  Linear c_fc, c_proj;
  Dropout dropout;

  GptMlp(std::int64_t width, GeluApproximation gelu, double resid_pdrop = 0)
      : c_fc(add("c_fc", Linear(width, 4 * width))),
        c_proj(add("c_proj", Linear(4 * width, width))),
        dropout(add("dropout", Dropout(resid_pdrop))),
        gelu_(gelu) {}

  Tensor forward(const Tensor& x) override { return dropout(projected(x)); }

 private:
  Tensor projected(const Tensor& x) {
    const Linear *up = plain(c_fc), *down = plain(c_proj);
    const bool as_one = gelu_ != GeluApproximation::none && up != nullptr && down != nullptr &&
                        !c_fc.has_hooks() && !c_proj.has_hooks();
    if (!as_one) {
      return c_proj(gelu(c_fc(x), gelu_));
    }
    return feed_forward(x, up->weight, up->bias, down->weight, down->bias, gelu_);
  }

  // The layer itself where it is a Linear as it stands, or null.
  static const Linear* plain(Linear& layer) {
    const Linear* const found = layer.as<Linear>();
    const bool is_plain = found != nullptr && typeid(*found) == typeid(Linear) &&
                          layer.as<CheckpointWrapper>() == nullptr;
    return is_plain ? found : nullptr;
  }

  GeluApproximation gelu_;
};

// y = x + attn(ln_1(x)); y + mlp(ln_2(y)).
struct GptBlock : Module {
  LayerNorm ln_1;
  GptAttention attn;
  LayerNorm ln_2;
  GptMlp mlp;

  explicit GptBlock(const GptSettings& settings)
      : ln_1(add("ln_1", LayerNorm(settings.width))),
        attn(add("attn", GptAttention(settings.width, settings.heads, settings.attn_pdrop,
                                      settings.resid_pdrop))),
        ln_2(add("ln_2", LayerNorm(settings.width))),
        mlp(add("mlp", GptMlp(settings.width, settings.gelu, settings.resid_pdrop))) {}

  Tensor forward(const Tensor& x) override { return attend(x, nullptr); }
  Tensor attend(const Tensor& x, GptCache::Layer* seen) {
    const Tensor y = x + attn.call(&GptAttention::attend, ln_1(x), seen);
    return y + mlp(ln_2(y));
  }
};

// All but the head: tokens [B, T] of i64, T at most `positions` -> [B, T, width].
struct GptTransformer : Module {
  Embedding wte, wpe;
  Dropout drop;
  Sequential h;
  LayerNorm ln_f;

  explicit GptTransformer(const GptSettings& settings)
      : wte(add("wte", Embedding(settings.vocabulary, settings.width))),
        wpe(add("wpe", Embedding(settings.positions, settings.width))),
        drop(add("drop", Dropout(settings.embd_pdrop))),
        h(add("h", blocks(settings))),
        ln_f(add("ln_f", LayerNorm(settings.width))) {}

  Tensor forward(const Tensor& tokens) override { return ln_f(h(embedded(tokens, 0))); }
  // Of tokens that come after those that the cache has.
  Tensor go_on(const Tensor& tokens, GptCache* cache) {
    Tensor x = embedded(tokens, cache->length);
    cache->layers.resize(h.size());
    auto seen = cache->layers.begin();
    for (Module& block : h) x = block.call(&GptBlock::attend, x, &*seen++);
    cache->length += tokens.size(1);
    return ln_f(x);
  }

 private:
  Tensor embedded(const Tensor& tokens, std::int64_t first) {
    PEAL_CHECK(tokens.dim() == 2, "GPT: expected tokens [B, T], got shape ", tokens.shape());
    const std::int64_t end = first + tokens.size(1);
    return drop(wte(tokens) + wpe(arange(first, end, 1, DType::i64, tokens.device())));
  }
  static Sequential blocks(const GptSettings& settings) {
    Sequential all;
    for (std::int64_t i = 0; i < settings.layers; ++i) all.push_back(GptBlock(settings));
    return all;
  }
};

struct GPT : Module {
  GptTransformer transformer;
  Linear lm_head;

  explicit GPT(const GptSettings& settings = {})
      : transformer(add("transformer", GptTransformer(settings))),
        lm_head(add("lm_head", settings.tie_word_embeddings
                                   ? Linear(transformer.wte.weight)
                                   : Linear(settings.width, settings.vocabulary, false))) {
    // Section 2.3: what goes into the residual stream is scaled by 1 / sqrt(how many do).
    const double scale = 1 / std::sqrt(2.0 * static_cast<double>(settings.layers));
    for (const auto& [name, parameter] : named_parameters()) {
      if (name.ends_with("bias")) {
        init::constant_(parameter, 0);
      } else if (parameter.dim() == 2) {
        init::normal_(parameter, 0, name.ends_with("c_proj.weight") ? 0.02 * scale : 0.02);
      }
    }
  }

  // tokens [B, T] of i64, T at most `positions` -> logits [B, T, vocabulary].
  Tensor forward(const Tensor& tokens) override { return lm_head(transformer(tokens)); }
  // The same of tokens [B, T] that come after those that the cache has, which then has these, too:
  // the logits that forward() gives for them behind the others. Error: another B than the cache's,
  // more tokens in all than `positions`.
  Tensor continued(const Tensor& tokens, GptCache& cache) {
    return call(&GPT::go_on, tokens, &cache);
  }
  // Of what comes after the last token alone: the logits [B, vocabulary] that continued() has at
  // their end, or without a cache forward(). T is above 0.
  Tensor next(const Tensor& tokens, GptCache* cache = nullptr) {
    return call(&GPT::last_of, tokens, cache);
  }
  std::int64_t positions() const { return transformer.wpe.weight.size(0); }

 private:
  Tensor go_on(const Tensor& tokens, GptCache* cache) { return lm_head(states(tokens, cache)); }
  Tensor last_of(const Tensor& tokens, GptCache* cache) {
    PEAL_CHECK(tokens.dim() == 2 && tokens.size(1) > 0,
               "GPT: expected tokens [B, T], T above 0, got shape ", tokens.shape());
    const Tensor all = cache == nullptr ? transformer(tokens) : states(tokens, cache);
    // Where ranks have parts of the sequence (parallel/tensor/), the head brings them together.
    if (all.size(1) != tokens.size(1)) return select(lm_head(all), 1, tokens.size(1) - 1);
    return select(lm_head(narrow(all, 1, tokens.size(1) - 1, 1)), 1, 0);
  }
  // What the head makes logits of: [B, T, width].
  Tensor states(const Tensor& tokens, GptCache* cache) {
    PEAL_CHECK(tokens.dim() == 2 && cache->length + tokens.size(1) <= positions(),
               "GPT: expected tokens [B, T], T at most ", positions() - cache->length, " after ",
               cache->length, " in the cache, got shape ", tokens.shape());
    const std::int64_t rows =
        cache->layers.empty() ? tokens.size(0) : cache->layers[0].keys.size(0);
    PEAL_CHECK(rows == tokens.size(0), "GPT: the cache has ", rows, " rows, got tokens of shape ",
               tokens.shape());
    if (cache->length == 0 || tokens.size(1) == 1) {
      return transformer.call(&GptTransformer::go_on, tokens, cache);
    }
    Tensors each;  // one by one, as all of these see all of those
    for (const Tensor& token : Tensors(split(tokens, 1, 1))) each.push_back(states(token, cache));
    return cat(each, 1);
  }
};

}  // namespace peal::nn
