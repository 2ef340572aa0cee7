// SPDX-License-Identifier: Apache-2.0
// Layers of a transformer, alone, stacked, and both stacks together.
#include <peal/nn/layers/layers.h>

#include "torch_layer_writer.h"

namespace peal::test {
namespace {

Tensor hidden(const Tensor& x) { return cast(x, DType::boolean); }
// [2, 4] and [2, 5]: what is padding; [4, 5]: what a query of four may not see of five.
Tensor padding4() { return Tensor::from<std::int64_t>({0, 0, 0, 1, 0, 1, 0, 0}, {2, 4}); }
Tensor padding5() { return Tensor::from<std::int64_t>({0, 0, 0, 0, 1, 0, 1, 0, 0, 0}, {2, 5}); }
Tensor some() {
  return Tensor::from<std::int64_t>({0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0},
                                    {4, 5});
}
const std::string future = "torch.ones(4, 4, dtype=torch.bool).triu(1)";

nn::TransformerSettings small(const nn::TransformerActivation& activation = "relu",
                              bool norm_first = false) {
  return {.dim_feedforward = 10,
          .dropout = 0,
          .activation = activation,
          .batch_first = true,
          .norm_first = norm_first};
}

nn::TransformerSettings without_bias(bool norm_first) {
  nn::TransformerSettings settings = small("relu", norm_first);
  settings.bias = false;
  return settings;
}

void write_encoders(LayerWriter& write) {
  const Tensor x = randn({2, 4, 6});
  const std::string layer = "nn.TransformerEncoderLayer(6, 2, 10, 0., batch_first=True";
  for (const bool first : {false, true}) {
    write(
        layer + ", norm_first=" + (first ? "True" : "False") + ", bias=False)",
        [=] { return nn::TransformerEncoderLayer(6, 2, without_bias(first)); }, x);
  }
  const auto plain = [] { return nn::TransformerEncoderLayer(6, 2, small()); };
  const auto before = [] { return nn::TransformerEncoderLayer(6, 2, small("gelu", true)); };
  write(layer + ")", plain, x);
  write(layer + ", activation='gelu', norm_first=True)", before, x);
  write(
      layer + ", activation=torch.tanh, layer_norm_eps=0.1)",
      [] {
        nn::TransformerSettings settings = small([](const Tensor& y) { return tanh(y); });
        settings.layer_norm_eps = 0.1;
        return nn::TransformerEncoderLayer(6, 2, settings);
      },
      x);
  write(
      "nn.TransformerEncoderLayer(6, 2, 10, 0.)",
      [] { return nn::TransformerEncoderLayer(6, 2, {.dim_feedforward = 10, .dropout = 0}); },
      {x, padding4()}, "m(x[0].transpose(0, 1), None, x[1].bool()).transpose(0, 1)",
      [](auto& m, const Tensors& t) {
        const Tensor y = m(transpose(t[0], 0, 1), {.src_key_padding_mask = hidden(t[1])});
        return Tensors{transpose(y, 0, 1)};
      });
  for (const bool first : {false, true}) {
    const auto make = [=] { return nn::TransformerEncoderLayer(6, 2, small("relu", first)); };
    const std::string torch = layer + (first ? ", norm_first=True)" : ")");
    write(torch, make, {x}, "m(x[0], " + future + ")",
          [](auto& m, const Tensors& t) { return Tensors{m(t[0], {.is_causal = true})}; });
    write(torch, make, {x, padding4()}, "m(x[0], " + future + ", x[1].bool())",
          [](auto& m, const Tensors& t) {
            return Tensors{m(t[0], {.src_key_padding_mask = hidden(t[1]), .is_causal = true})};
          });
  }
  write(layer + ")", plain, {x, randn({4, 4})}, "m(x[0], x[1])",
        [](auto& m, const Tensors& t) { return Tensors{m(t[0], {.src_mask = t[1]})}; });
  write(
      "nn.TransformerEncoder(" + layer + "), 2)",
      [=] { return nn::TransformerEncoder(plain(), 2); }, x);
  write(
      "nn.TransformerEncoder(" + layer +
          ", activation='gelu', norm_first=True), 3, nn.LayerNorm(6))",
      [=] { return nn::TransformerEncoder(before(), 3, nn::LayerNorm(6)); }, {x, padding4()},
      "m(x[0], " + future + ", x[1].bool())",
      [](auto& m, const Tensors& t) {
        return Tensors{
            m(t[0], {.src_mask = nn::Transformer::generate_square_subsequent_mask(4, t[0].dtype()),
                     .src_key_padding_mask = hidden(t[1])})};
      });
}

void write_decoders(LayerWriter& write) {
  const Tensor tgt = randn({2, 4, 6}), memory = randn({2, 5, 6});
  const std::string layer = "nn.TransformerDecoderLayer(6, 2, 10, 0., batch_first=True";
  const auto run = [](auto& m, const Tensors& t) {
    return Tensors{m(t[0], t[1],
                     {.memory_mask = hidden(t[2]),
                      .tgt_key_padding_mask = hidden(t[3]),
                      .memory_key_padding_mask = hidden(t[4]),
                      .tgt_is_causal = true})};
  };
  const std::string call = "m(x[0], x[1], " + future + ", x[2].bool(), x[3].bool(), x[4].bool())";
  const Tensors inputs{tgt, memory, some(), padding4(), padding5()};
  for (const bool first : {false, true}) {
    const auto make = [=] { return nn::TransformerDecoderLayer(6, 2, small("gelu", first)); };
    const std::string torch = layer + ", activation='gelu'" + (first ? ", norm_first=True)" : ")");
    write(torch, make, {tgt, memory}, "m(x[0], x[1])",
          [](auto& m, const Tensors& t) { return Tensors{m(t[0], t[1])}; });
    write(torch, make, inputs, call, run);
    write(
        layer + ", norm_first=" + (first ? "True" : "False") + ", bias=False)",
        [=] { return nn::TransformerDecoderLayer(6, 2, without_bias(first)); }, {tgt, memory},
        "m(x[0], x[1])", [](auto& m, const Tensors& t) { return Tensors{m(t[0], t[1])}; });
    write(
        "nn.TransformerDecoder(" + torch + ", 2, nn.LayerNorm(6))",
        [=] { return nn::TransformerDecoder(make(), 2, nn::LayerNorm(6)); }, inputs, call, run);
  }
}

}  // namespace

void write_transformers(LayerWriter& write) {
  write_encoders(write);
  write_decoders(write);
  const Tensor src = randn({2, 5, 6}), tgt = randn({2, 4, 6});
  for (const bool first : {true, false}) {  // which batch or length is
    const std::string torch = std::string("nn.Transformer(6, 2, 2, 1, 10, 0., 'gelu'") +
                              (first ? ", batch_first=True)" : ")");
    write(
        torch,
        [=] {
          nn::TransformerSettings settings = small("gelu");
          settings.batch_first = first;
          return nn::Transformer(6, 2, 2, 1, settings);
        },
        {first ? src : transpose(src, 0, 1), first ? tgt : transpose(tgt, 0, 1), some(),
         padding5()},
        "m(x[0], x[1], None, " + future + ", x[2].bool(), x[3].bool(), None, x[3].bool())",
        [](auto& m, const Tensors& t) {
          return Tensors{m(t[0], t[1],
                           {.memory_mask = hidden(t[2]),
                            .src_key_padding_mask = hidden(t[3]),
                            .memory_key_padding_mask = hidden(t[3]),
                            .tgt_is_causal = true})};
        });
  }
  write(
      "nn.Transformer(6, 2, 1, 1, 10, 0., batch_first=True, bias=False)",
      [] { return nn::Transformer(6, 2, 1, 1, without_bias(false)); }, {src, tgt}, "m(x[0], x[1])",
      [](auto& m, const Tensors& t) { return Tensors{m(t[0], t[1])}; });
}

}  // namespace peal::test
