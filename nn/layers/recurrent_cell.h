// SPDX-License-Identifier: Apache-2.0
// LSTMCell, GRUCell and RNNCell: one step of a recurrent layer (recurrent.h), for loops of one's
// own. Keys are PyTorch's: weight_ih, weight_hh, bias_ih, bias_hh; all uniform in +-1/sqrt(hidden).
// x is [N, input], states are [N, hidden], or without N. Whole sequences are faster by the layers.
// Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/recurrent.h>
#include <peal/nn/layers/recurrent.h>

namespace peal::nn {

class RecurrentCellModule : public Module {
 public:
  const RecurrentWeights& weights() const { return weights_; }

 protected:
  RecurrentCellModule(std::string_view name, std::int64_t gates, std::int64_t input,
                      std::int64_t hidden, bool bias);
  // As a sequence [1, N, input]; states as [N, hidden], or undefined.
  Tensor as_sequence(const Tensor& x) const;
  Tensor as_state(const Tensor& state, const Tensor& x) const;
  // A state [N, hidden] as x has it.
  Tensor as_given(const Tensor& state, const Tensor& x) const;

 private:
  std::string_view name_;
  std::int64_t input_, hidden_;
  RecurrentWeights weights_;
};

class LSTMCell : public RecurrentCellModule {
 public:
  LSTMCell(std::int64_t input, std::int64_t hidden, bool bias = true);

  struct Result {
    Tensor h, c;
    auto fields() { return std::tie(h, c); }
  };
  // States that are undefined are zeros.
  Result step(const Tensor& x, const Tensor& h = {}, const Tensor& c = {});
  using Module::operator();
  Result operator()(const Tensor& x, const Tensor& h, const Tensor& c) {
    return call(&LSTMCell::step, x, h, c);
  }
  Tensor forward(const Tensor& x) override { return step(x).h; }
};

class GRUCell : public RecurrentCellModule {
 public:
  GRUCell(std::int64_t input, std::int64_t hidden, bool bias = true);

  Tensor step(const Tensor& x, const Tensor& h = {});
  using Module::operator();
  Tensor operator()(const Tensor& x, const Tensor& h) { return call(&GRUCell::step, x, h); }
  Tensor forward(const Tensor& x) override { return step(x); }
};

class RNNCell : public RecurrentCellModule {
 public:
  RNNCell(std::int64_t input, std::int64_t hidden, bool bias = true,
          RnnNonlinearity nonlinearity = RnnNonlinearity::tanh);

  Tensor step(const Tensor& x, const Tensor& h = {});
  using Module::operator();
  Tensor operator()(const Tensor& x, const Tensor& h) { return call(&RNNCell::step, x, h); }
  Tensor forward(const Tensor& x) override { return step(x); }

 private:
  RnnNonlinearity nonlinearity_;
};

}  // namespace peal::nn
