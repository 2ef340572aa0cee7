// SPDX-License-Identifier: Apache-2.0
// LSTM, GRU and RNN over whole sequences, with all their layers and directions: each direction of a
// layer is one op (autograd/ops/recurrent.h says what it computes). Layer k reads what layer k - 1
// wrote; a bidirectional one runs a second set of weights from the end to the beginning, and writes
// both side by side.
//
// Keys, order and initialisation are PyTorch's: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0,
// the same with _reverse, then l1; all uniform in +-1/sqrt(hidden). The rows of a weight are those
// of the gates, one below the other: input, forget, cell, output; reset, update, new.
//
//   nn::LSTM lstm(28, 64, {.num_layers = 2, .batch_first = true});
//   auto [output, h, c] = lstm.unroll(x);   // x [N, T, 28] -> [N, T, 64], [2, N, 64], [2, N, 64]
//   lstm.unroll_padded(x, lengths);         // PyTorch's pack_padded_sequence, and back
//
// A sequence alone is [T, ...], its states [layers * directions, hidden]. Under Autocast output and
// states are in low precision, as PyTorch's. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/recurrent.h>
#include <peal/nn/module.h>

#include <string>
#include <tuple>

namespace peal::nn {

enum class RnnNonlinearity : std::uint8_t { tanh, relu };

struct RecurrentSettings {
  std::int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;  // sequences are [N, T, ...] instead of [T, N, ...]; states never
  double dropout = 0;        // of what goes from layer to layer, while training
  bool bidirectional = false;
  RnnNonlinearity nonlinearity = RnnNonlinearity::tanh;  // of RNN alone
};

// What those below share.
class Recurrent : public Module {
 public:
  // x [T, N, input] -> [T, N, hidden], or twice hidden where bidirectional; from states of zero.
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  // Of each direction of each layer, forwards before backwards; without biases those are undefined.
  using Weights = std::vector<RecurrentWeights>;
  const Weights& weights() const { return weights_; }
  // What comes after "weight_ih" in the names of weights()[k]: "_l0", "_l0_reverse".
  std::string suffix(std::size_t k) const;

 protected:
  // One direction of a layer; c0 is passed over where there is none.
  using Op = RecurrentResult (*)(const Tensor& x, const Tensor& h0, const Tensor& c0,
                                 const RecurrentWeights& weights, const RecurrentOptions& options);

  Recurrent(std::string_view name, std::int64_t gates, Op op, std::size_t states,
            std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings);
  // The output, then the last states, [layers times directions, N, hidden]. `initial` holds such
  // states, or undefined ones for zeros; so lengths.
  Tensors unrolled(const Weights& weights, const Tensor& input, const Tensors& initial,
                   const Tensor& lengths) const;

 private:
  Tensor state_of(const Tensor& given, std::size_t k, std::int64_t batch, bool alone,
                  const Tensor& x) const;

  std::string_view name_;
  Op op_;
  std::size_t states_;  // how many
  std::int64_t input_, hidden_;
  RecurrentSettings settings_;
  Weights weights_;
};

class LSTM : public Recurrent {
 public:
  LSTM(std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings = {});

  struct Result {
    Tensor output, h, c;  // h and c: after the last step, [layers * directions, N, hidden]
    auto fields() { return std::tie(output, h, c); }
  };
  // From h0 and c0, shaped as h and c, or undefined for zeros. Hooks run where it is called so:
  // lstm.call(&LSTM::unroll, x, h0, c0), or lstm(x, h0, c0).
  Result unroll(const Tensor& x, const Tensor& h0 = {}, const Tensor& c0 = {});
  using Module::operator();
  Result operator()(const Tensor& x, const Tensor& h0, const Tensor& c0) {
    return call(&LSTM::unroll, x, h0, c0);
  }
  // Of sequences that end early: lengths i64 [N], each in [1, T]. Past its end the output is 0; the
  // last states are those at each one's own end.
  Result unroll_padded(const Tensor& x, const Tensor& lengths, const Tensor& h0 = {},
                       const Tensor& c0 = {});
  // With these weights, of the same shapes, in the place of its own (WeightDrop).
  Result unroll_with(const Weights& weights, const Tensor& x, const Tensor& h0 = {},
                     const Tensor& c0 = {}, const Tensor& lengths = {}) const;
};

class GRU : public Recurrent {
 public:
  GRU(std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings = {});

  struct Result {
    Tensor output, h;
    auto fields() { return std::tie(output, h); }
  };
  // As LSTM's.
  Result unroll(const Tensor& x, const Tensor& h0 = {});
  using Module::operator();
  Result operator()(const Tensor& x, const Tensor& h0) { return call(&GRU::unroll, x, h0); }
  Result unroll_padded(const Tensor& x, const Tensor& lengths, const Tensor& h0 = {});
  Result unroll_with(const Weights& weights, const Tensor& x, const Tensor& h0 = {},
                     const Tensor& lengths = {}) const;
};

// With tanh, or relu.
class RNN : public Recurrent {
 public:
  RNN(std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings = {});

  using Result = GRU::Result;
  // As LSTM's.
  Result unroll(const Tensor& x, const Tensor& h0 = {});
  using Module::operator();
  Result operator()(const Tensor& x, const Tensor& h0) { return call(&RNN::unroll, x, h0); }
  Result unroll_padded(const Tensor& x, const Tensor& lengths, const Tensor& h0 = {});
  Result unroll_with(const Weights& weights, const Tensor& x, const Tensor& h0 = {},
                     const Tensor& lengths = {}) const;
};

}  // namespace peal::nn
