// SPDX-License-Identifier: Apache-2.0
// Weight dropout (DropConnect) of a recurrent layer: while training each sequence is run with
// weights of which elements are zeroed with probability p and the others scaled by 1 / (1 - p), the
// same at every step (Merity et al., "Regularizing and optimizing LSTM language models", 2018,
// section 2).
//
//   nn::WeightDrop rnn(nn::LSTM(400, 1152), 0.5);
//   auto [output, h, c] = rnn.unroll(x);
//
// Keys are fastai's: the weights that are dropped are this module's, weight_hh_l0_raw; the others
// are those of its child `module`. The layer's handle that was given shares them all. Thread
// safety: as of Module.
#pragma once

#include <peal/nn/layers/recurrent.h>

#include <string>
#include <utility>
#include <vector>

namespace peal::nn {

class WeightDropBase : public Module {
 protected:
  // `names`: which weights; none: all weight_hh.
  WeightDropBase(const Recurrent& layer, double p, const std::vector<std::string>& names);
  // The layer's, dropped anew where this is training.
  Recurrent::Weights drawn() const;

 private:
  struct Dropped {
    std::size_t set;  // of the layer's weights
    Tensor RecurrentWeights::*which;
  };
  Recurrent::Weights weights_;
  std::vector<Dropped> dropped_;
  double p_;
};

template <class Layer>  // LSTM, GRU or RNN
class WeightDrop : public WeightDropBase {
 public:
  explicit WeightDrop(Layer layer, double p, const std::vector<std::string>& names = {})
      : WeightDropBase(layer, p, names), layer_(std::move(layer)) {}

  // As the layer's: x, and states to begin from, or undefined for zeros.
  template <class... States>
  typename Layer::Result unroll(const Tensor& x, const States&... states) {
    layer_.train(training());
    return layer_.unroll_with(drawn(), x, states...);
  }
  Tensor forward(const Tensor& x) override { return unroll(x).output; }

 private:
  Layer layer_;
};

}  // namespace peal::nn
