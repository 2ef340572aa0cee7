// SPDX-License-Identifier: Apache-2.0
// LSTM, GRU, RNN and their cells.
#include <peal/nn/layers/layers.h>

#include "torch_layer_writer.h"

using namespace peal;

namespace {

using Writer = test::LayerWriter;

// Every combination of layers, directions and options, with and without states to begin from.
void write_combinations(Writer& write) {
  for (const std::int64_t layers : {1, 2, 3}) {
    for (const bool both : {false, true}) {
      for (const bool first : {false, true}) {
        for (const bool bias : {true, false}) {
          const auto word = [](bool on) { return on ? "True" : "False"; };
          const std::string settings =
              concat("(3, 4, ", layers, ", bias=", word(bias), ", batch_first=", word(first),
                     ", bidirectional=", word(both), ")");
          const nn::RecurrentSettings o{layers, bias, first, 0, both};
          const Tensor x = randn({5, 7, 3});
          const Shape state{layers * (both ? 2 : 1), first ? 5 : 7, 4};
          const auto lstm = [o] { return nn::LSTM(3, 4, o); };
          const auto gru = [o] { return nn::GRU(3, 4, o); };
          write("nn.LSTM" + settings, lstm, {x, randn(state), randn(state)},
                "m(x[0], (x[1], x[2]))", [](nn::LSTM& layer, const Tensors& t) {
                  const auto [y, h, c] = layer.unroll(t[0], t[1], t[2]);
                  return Tensors{y, h, c};
                });
          write("nn.GRU" + settings, gru, {x, randn(state)}, "m(x[0], x[1])",
                [](nn::GRU& layer, const Tensors& t) {
                  const auto [y, h] = layer.unroll(t[0], t[1]);
                  return Tensors{y, h};
                });
          if (!bias) continue;
          write("nn.LSTM" + settings, lstm, {x}, "m(x[0])[0]",
                [](nn::LSTM& layer, const Tensors& t) { return Tensors{layer(t[0])}; });
          write("nn.GRU" + settings, gru, {x}, "m(x[0])[0]",
                [](nn::GRU& layer, const Tensors& t) { return Tensors{layer(t[0])}; });
        }
      }
    }
  }
  write(
      "nn.LSTM(8, 16)", [] { return nn::LSTM(8, 16); }, {randn({150, 2, 8})}, "m(x[0])[0]",
      [](nn::LSTM& layer, const Tensors& t) { return Tensors{layer(t[0])}; });
}

void write_rnn(Writer& write) {
  for (const bool both : {false, true}) {
    for (const auto& [word, function] :
         {std::pair("tanh", nn::RnnNonlinearity::tanh), {"relu", nn::RnnNonlinearity::relu}}) {
      const nn::RecurrentSettings o{
          .num_layers = 2, .batch_first = both, .bidirectional = both, .nonlinearity = function};
      const char* on = both ? "True" : "False";
      write(
          concat("nn.RNN(3, 4, 2, nonlinearity='", word, "', batch_first=", on,
                 ", bidirectional=", on, ")"),
          [o] { return nn::RNN(3, 4, o); },
          {randn({5, 7, 3}), randn({both ? 4 : 2, both ? 5 : 7, 4})}, "m(x[0], x[1])",
          [](nn::RNN& layer, const Tensors& t) {
            const auto [y, h] = layer.unroll(t[0], t[1]);
            return Tensors{y, h};
          });
    }
  }
}

// Sequences that end early, against PyTorch's packed ones.
void write_lengths(Writer& write) {
  const Tensor lengths = Tensor::from<std::int64_t>({3, 6, 1, 5}, {4});
  const auto packed = [](const char* input, const char* rest, bool first) {
    const std::string settings = concat("batch_first=", first ? "True" : "False");
    return concat("(lambda o: [torch.nn.utils.rnn.pad_packed_sequence(o[0], total_length=6, ",
                  settings, ")[0], o[1]])(m(torch.nn.utils.rnn.pack_padded_sequence(", input,
                  ", enforce_sorted=False, ", settings, "), ", rest, "))");
  };
  for (const bool both : {false, true}) {
    const nn::RecurrentSettings o{.num_layers = 2, .batch_first = both, .bidirectional = both};
    const char* on = both ? "True" : "False";
    const std::string settings = concat("(3, 5, 2, batch_first=", on, ", bidirectional=", on, ")");
    const Shape state{both ? 4 : 2, 4, 5};
    const Tensor x = both ? randn({4, 6, 3}) : randn({6, 4, 3});
    write(
        "nn.LSTM" + settings, [o] { return nn::LSTM(3, 5, o); },
        {x, randn(state), randn(state), lengths}, packed("x[0], x[3]", "(x[1], x[2])", both),
        [](nn::LSTM& layer, const Tensors& t) {
          const auto [y, h, c] = layer.unroll_padded(t[0], t[3], t[1], t[2]);
          return Tensors{y, h, c};
        });
    write(
        "nn.GRU" + settings, [o] { return nn::GRU(3, 5, o); }, {x, randn(state), lengths},
        packed("x[0], x[2]", "x[1]", both),
        [](nn::GRU& layer, const Tensors& t) {
          const auto [y, h] = layer.unroll_padded(t[0], t[2], t[1]);
          return Tensors{y, h};
        });
    write(
        "nn.RNN" + settings, [o] { return nn::RNN(3, 5, o); }, {x, randn(state), lengths},
        packed("x[0], x[2]", "x[1]", both),
        [](nn::RNN& layer, const Tensors& t) {
          const auto [y, h] = layer.unroll_padded(t[0], t[2], t[1]);
          return Tensors{y, h};
        });
  }
}

// One step, one sequence, a sequence without a dimension for others; sizes of whole panels and
// more.
void write_shapes(Writer& write) {
  for (const Shape& shape : {Shape{1, 6, 3}, Shape{6, 1, 3}, Shape{1, 1, 3}, Shape{6, 3}}) {
    write(
        "nn.LSTM(3, 5, 2, bidirectional=True)",
        [] { return nn::LSTM(3, 5, {.num_layers = 2, .bidirectional = true}); }, {randn(shape)},
        "m(x[0])",
        [](nn::LSTM& layer, const Tensors& t) {
          const auto [y, h, c] = layer.unroll(t[0]);
          return Tensors{y, h, c};
        });
    write(
        "nn.GRU(3, 5)", [] { return nn::GRU(3, 5); }, {randn(shape)}, "m(x[0])",
        [](nn::GRU& layer, const Tensors& t) {
          const auto [y, h] = layer.unroll(t[0]);
          return Tensors{y, h};
        });
  }
  for (const std::int64_t batch : {1, 13}) {
    write(
        "nn.LSTM(7, 77)", [] { return nn::LSTM(7, 77); }, {randn({50, batch, 7})}, "m(x[0])[0]",
        [](nn::LSTM& layer, const Tensors& t) { return Tensors{layer(t[0])}; });
    write(
        "nn.GRU(7, 77)", [] { return nn::GRU(7, 77); }, {randn({50, batch, 7})}, "m(x[0])[0]",
        [](nn::GRU& layer, const Tensors& t) { return Tensors{layer(t[0])}; });
  }
}

void write_cells(Writer& write) {
  for (const bool bias : {true, false}) {
    const std::string settings = bias ? "(3, 4)" : "(3, 4, bias=False)";
    write(
        "nn.LSTMCell" + settings, [=] { return nn::LSTMCell(3, 4, bias); },
        {randn({5, 3}), randn({5, 4}), randn({5, 4})}, "m(x[0], (x[1], x[2]))",
        [](nn::LSTMCell& cell, const Tensors& t) {
          const auto [h, c] = cell(t[0], t[1], t[2]);
          return Tensors{h, c};
        });
    write(
        "nn.GRUCell" + settings, [=] { return nn::GRUCell(3, 4, bias); },
        {randn({5, 3}), randn({5, 4})}, "m(x[0], x[1])",
        [](nn::GRUCell& cell, const Tensors& t) { return Tensors{cell(t[0], t[1])}; });
    write(
        "nn.RNNCell" + settings, [=] { return nn::RNNCell(3, 4, bias); }, {randn({3}), randn({4})},
        "m(x[0], x[1])",
        [](nn::RNNCell& cell, const Tensors& t) { return Tensors{cell(t[0], t[1])}; });
  }
  write(
      "nn.RNNCell(3, 4, nonlinearity='relu')",
      [] { return nn::RNNCell(3, 4, true, nn::RnnNonlinearity::relu); }, {randn({5, 3})}, "m(x[0])",
      [](nn::RNNCell& cell, const Tensors& t) { return Tensors{cell(t[0])}; });
  write(
      "nn.LSTMCell(3, 4)", [] { return nn::LSTMCell(3, 4); }, {randn({3})}, "m(x[0])",
      [](nn::LSTMCell& cell, const Tensors& t) {
        const auto [h, c] = cell.step(t[0]);
        return Tensors{h, c};
      });
}

}  // namespace

namespace peal::test {

void write_recurrent_layers(LayerWriter& write) {
  write_combinations(write);
  write_rnn(write);
  write_lengths(write);
  write_shapes(write);
  write_cells(write);
}

}  // namespace peal::test
