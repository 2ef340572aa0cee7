// SPDX-License-Identifier: Apache-2.0
// GPT: a decoder of transformer blocks with layer normalisation first (Radford et al., "Language
// models are unsupervised multitask learners", 2019, section 2.3). The children have short names: e
// and p embed tokens and positions; b.0, b.1, ... are blocks with n1, q, o, n2, u, w; n; hd. Thread
// safety: as of Module.
#pragma once

#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/layers.h>

namespace peal::nn {

// x + attention of n1(x), then x + w(gelu(u(n2(x)))). With gelu by tanh the latter is one op, for
// which u and w run no hooks, unless one of them was replaced. REQUIRES: heads divides width.
struct GptBlock : Module {
  LayerNorm n1;
  Linear q, o;  // q: queries, keys and values side by side
  LayerNorm n2;
  Linear u, w;

  GptBlock(std::int64_t width, std::int64_t heads, GeluApproximation gelu = GeluApproximation::none)
      : n1(add("n1", LayerNorm(width))),
        q(add("q", Linear(width, 3 * width))),
        o(add("o", Linear(width, width))),
        n2(add("n2", LayerNorm(width))),
        u(add("u", Linear(width, 4 * width))),
        w(add("w", Linear(4 * width, width))),
        heads_(heads),
        gelu_(gelu) {}

  Tensor forward(const Tensor& x) override {
    const Tensor y = x + o(self_attention(q(n1(x)), heads_, true));
    return y + feed(n2(y));
  }

 private:
  Tensor feed(const Tensor& x) {
    const Linear *up = u.as<Linear>(), *down = w.as<Linear>();
    if (gelu_ == GeluApproximation::none || up == nullptr || down == nullptr) {
      return w(gelu(u(x), gelu_));
    }
    return feed_forward(x, up->weight, up->bias, down->weight, down->bias, gelu_);
  }

  std::int64_t heads_;
  GeluApproximation gelu_;
};

struct GptSettings {
  std::int64_t vocabulary = 1000, width = 256, heads = 4, layers = 4, positions = 128;
  GeluApproximation gelu = GeluApproximation::none;  // GPT-2's own is by tanh
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
      all.push_back(GptBlock(settings.width, settings.heads, settings.gelu));
    }
    return all;
  }
};

}  // namespace peal::nn
