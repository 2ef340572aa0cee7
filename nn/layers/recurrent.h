// SPDX-License-Identifier: Apache-2.0
// LSTM (Hochreiter and Schmidhuber, "Long short-term memory", 1997, with the forget gate of Gers et
// al., 2000) and GRU (Cho et al., "Learning phrase representations using RNN encoder-decoder",
// 2014, in the form in which the reset gate meets the product, as cuDNN and PyTorch have it), over
// whole sequences. Layer k reads what layer k - 1 wrote; a bidirectional one runs a second set of
// weights from the end to the beginning, and writes both side by side.
//
// Keys, order and initialisation are PyTorch's: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0,
// the same with _reverse, then l1; all uniform in +-1/sqrt(hidden). The rows of a weight are those
// of the gates, one below the other: input, forget, cell, output; reset, update, new.
//
//   nn::LSTM lstm(28, 64, {.num_layers = 2, .batch_first = true});
//   auto [output, h, c] = lstm.unroll(x);   // x [N, T, 28] -> [N, T, 64], [2, N, 64], [2, N, 64]
//
// Under Autocast output and states are in low precision, as PyTorch's. Thread safety: as of Module.
#pragma once

#include <peal/nn/module.h>

#include <tuple>

namespace peal::nn {

struct RecurrentSettings {
  std::int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;  // sequences are [N, T, ...] instead of [T, N, ...]; states never
  double dropout = 0;        // of what goes from layer to layer, while training
  bool bidirectional = false;
};

// What the two below share.
class Recurrent : public Module {
 public:
  // x [T, N, input] -> [T, N, hidden], or twice hidden where bidirectional; from states of zero.
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

 protected:
  // One direction of a layer. Without biases those are undefined.
  struct Weights {
    Tensor ih, hh, bias_ih, bias_hh;
  };
  // A step: from what the input brings, [N, gates hidden], to the next states, all [N, hidden]; the
  // first of them is what the layer writes.
  using Step = Tensors (*)(const Tensor& from_input, const Tensors& states, const Weights& weights);

  Recurrent(std::string_view name, std::int64_t gates, Step step, std::size_t states,
            std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings);
  // The output, then the last states, [layers times directions, N, hidden]. `initial` holds such
  // states, or undefined ones for zeros.
  Tensors unrolled(const Tensor& input, const Tensors& initial);

 private:
  Tensor states_of(const Tensor& given, const Shape& shape, const Tensor& x) const;
  // One direction over the sequence [T, N, ...]; `states` are taken and given back.
  Tensor run(const Tensor& x, const Weights& weights, Tensors& states, bool reverse) const;

  std::string_view name_;
  Step step_;
  std::size_t states_;  // how many
  std::int64_t input_, hidden_;
  RecurrentSettings settings_;
  std::vector<Weights> weights_;  // layer by layer, forwards before backwards
};

class LSTM : public Recurrent {
 public:
  LSTM(std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings = {});

  struct Result {
    Tensor output, h, c;  // h and c: after the last step, [layers * directions, N, hidden]
    auto fields() { return std::tie(output, h, c); }
  };
  // From h0 and c0, shaped as h and c, or undefined for zeros. Hooks run where it is called so:
  // lstm.call(&LSTM::unroll, x, h0, c0).
  Result unroll(const Tensor& x, const Tensor& h0 = {}, const Tensor& c0 = {});
};

class GRU : public Recurrent {
 public:
  GRU(std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings = {});

  struct Result {
    Tensor output, h;
    auto fields() { return std::tie(output, h); }
  };
  Result unroll(const Tensor& x, const Tensor& h0 = {});
};

}  // namespace peal::nn
