// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/shape.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/recurrent_cell.h>

#include <cmath>

namespace peal::nn {

RecurrentCellModule::RecurrentCellModule(std::string_view name, std::int64_t gates,
                                         std::int64_t input, std::int64_t hidden, bool bias)
    : name_(name), input_(input), hidden_(hidden) {
  PEAL_CHECK(input > 0 && hidden > 0, name, ": sizes must be positive, got ", input, " -> ",
             hidden);
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const auto make = [&](const char* key, const Shape& shape) {
    return add_parameter(key, init::uniform(shape, bound));
  };
  weights_.ih = make("weight_ih", {gates * hidden, input});
  weights_.hh = make("weight_hh", {gates * hidden, hidden});
  if (!bias) return;
  weights_.bias_ih = make("bias_ih", {gates * hidden});
  weights_.bias_hh = make("bias_hh", {gates * hidden});
}

Tensor RecurrentCellModule::as_sequence(const Tensor& x) const {
  PEAL_CHECK((x.dim() == 1 || x.dim() == 2) && x.size(-1) == input_ && x.numel() > 0, name_,
             ": expected [N, ", input_, "] or [", input_, "], got shape ", x.shape());
  return reshape(x, {1, -1, input_});
}

Tensor RecurrentCellModule::as_state(const Tensor& state, const Tensor& x) const {
  if (!state.defined()) return state;
  const Shape wanted = x.dim() == 1 ? Shape{hidden_} : Shape{x.size(0), hidden_};
  PEAL_CHECK(state.shape() == wanted, name_, ": expected a state ", wanted, ", got ",
             state.shape());
  return reshape(state, {-1, hidden_});
}

Tensor RecurrentCellModule::as_given(const Tensor& state, const Tensor& x) const {
  return x.dim() == 1 ? squeeze(state, 0) : state;
}

LSTMCell::LSTMCell(std::int64_t input, std::int64_t hidden, bool bias)
    : RecurrentCellModule("LSTMCell", 4, input, hidden, bias) {}

LSTMCell::Result LSTMCell::step(const Tensor& x, const Tensor& h, const Tensor& c) {
  const RecurrentResult made = lstm(as_sequence(x), as_state(h, x), as_state(c, x), weights());
  return {as_given(made.h, x), as_given(made.c, x)};
}

GRUCell::GRUCell(std::int64_t input, std::int64_t hidden, bool bias)
    : RecurrentCellModule("GRUCell", 3, input, hidden, bias) {}

Tensor GRUCell::step(const Tensor& x, const Tensor& h) {
  return as_given(gru(as_sequence(x), as_state(h, x), weights()).h, x);
}

RNNCell::RNNCell(std::int64_t input, std::int64_t hidden, bool bias, RnnNonlinearity nonlinearity)
    : RecurrentCellModule("RNNCell", 1, input, hidden, bias), nonlinearity_(nonlinearity) {}

Tensor RNNCell::step(const Tensor& x, const Tensor& h) {
  const auto run = nonlinearity_ == RnnNonlinearity::tanh ? rnn_tanh : rnn_relu;
  return as_given(run(as_sequence(x), as_state(h, x), weights(), {}).h, x);
}

}  // namespace peal::nn
