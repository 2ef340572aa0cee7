// SPDX-License-Identifier: Apache-2.0
// GPT: a decoder of transformer blocks with layer normalisation first (Radford et al., "Language
// models are unsupervised multitask learners", 2019, section 2.3). The children have short names: e
// and p embed tokens and positions; b.0, b.1, ... are blocks with n1, q, o, n2, u, w; n; hd. Thread
// safety: as of Module.
#pragma once

#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/layers.h>

namespace peal::nn {

// x + attention of n1(x), then x + w(gelu(u(n2(x)))). REQUIRES: heads divides width.
struct GptBlock : Module {
  LayerNorm n1;
  Linear q, o;  // q: queries, keys and values side by side
  LayerNorm n2;
  Linear u, w;

  GptBlock(std::int64_t width, std::int64_t heads)
      : n1(add("n1", LayerNorm(width))),
        q(add("q", Linear(width, 3 * width))),
        o(add("o", Linear(width, width))),
        n2(add("n2", LayerNorm(width))),
        u(add("u", Linear(width, 4 * width))),
        w(add("w", Linear(4 * width, width))),
        heads_(heads) {}

  Tensor forward(const Tensor& x) override {
    const Tensor y = x + o(self_attention(q(n1(x)), heads_, true));
    return y + w(gelu(u(n2(y))));
  }

 private:
  std::int64_t heads_;
};

struct GptSettings {
  std::int64_t vocabulary = 1000, width = 256, heads = 4, layers = 4, positions = 128;
};

struct GPT : Module {
  Embedding e, p;
  Sequential b;
  LayerNorm n;
  Linear hd;

  explicit GPT(const GptSettings& settings = {})
      : e(add("e", Embedding(settings.vocabulary, settings.width))),
        p(add("p", Embedding(settings.positions, settings.width))),
        b(add("b", blocks(settings))),
        n(add("n", LayerNorm(settings.width))),
        hd(add("hd", Linear(settings.width, settings.vocabulary, false))) {}

  // tokens [B, T] of i64, T at most `positions` -> logits [B, T, vocabulary].
  Tensor forward(const Tensor& tokens) override {
    PEAL_CHECK(tokens.dim() == 2, "GPT: expected tokens [B, T], got shape ", tokens.shape());
    const Tensor places = arange(tokens.size(1), DType::i64, tokens.device());
    return hd(n(b(e(tokens) + p(places))));
  }

 private:
  static Sequential blocks(const GptSettings& settings) {
    Sequential all;
    for (std::int64_t i = 0; i < settings.layers; ++i) {
      all.push_back(GptBlock(settings.width, settings.heads));
    }
    return all;
  }
};

}  // namespace peal::nn
