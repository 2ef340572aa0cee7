// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/dropout.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/recurrent.h>

#include <cmath>

namespace peal::nn {

Recurrent::Recurrent(std::string_view name, std::int64_t gates, Op op, std::size_t states,
                     std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings)
    : name_(name), op_(op), states_(states), input_(input), hidden_(hidden), settings_(settings) {
  PEAL_CHECK(input > 0 && hidden > 0 && settings.num_layers > 0, name,
             ": sizes and num_layers must be positive, got ", input, " -> ", hidden, ", ",
             settings.num_layers, " layers");
  PEAL_CHECK(settings.dropout >= 0 && settings.dropout <= 1, name,
             ": expected a dropout in [0, 1], got ", settings.dropout);
  PEAL_CHECK(settings.nonlinearity == RnnNonlinearity::tanh || name == "RNN", name,
             ": a nonlinearity is RNN's to choose");
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const std::int64_t directions = settings.bidirectional ? 2 : 1;
  for (std::int64_t k = 0; k < settings.num_layers * directions; ++k) {
    const auto make = [&](const char* what, const Shape& shape) {
      return add_parameter(what + suffix(static_cast<std::size_t>(k)), init::uniform(shape, bound));
    };
    RecurrentWeights weights;
    weights.ih = make("weight_ih", {gates * hidden, k < directions ? input : directions * hidden});
    weights.hh = make("weight_hh", {gates * hidden, hidden});
    if (settings.bias) {
      weights.bias_ih = make("bias_ih", {gates * hidden});
      weights.bias_hh = make("bias_hh", {gates * hidden});
    }
    weights_.push_back(weights);
  }
}

std::string Recurrent::suffix(std::size_t k) const {
  const std::size_t directions = settings_.bidirectional ? 2 : 1;
  return concat("_l", k / directions, k % directions == 1 ? "_reverse" : "");
}

Tensor Recurrent::forward(const Tensor& x) {
  return unrolled(weights_, x, Tensors(states_), {})[0];
}

// The k-th of given states, or undefined.
Tensor Recurrent::state_of(const Tensor& given, std::size_t k, std::int64_t batch, bool alone,
                           const Tensor& x) const {
  if (!given.defined()) return {};
  const auto count = static_cast<std::int64_t>(weights_.size());
  const Shape shape = alone ? Shape{count, hidden_} : Shape{count, batch, hidden_};
  PEAL_CHECK(given.shape() == shape, name_, ": expected states [layers * directions, ",
             alone ? "" : "N, ", "hidden] = ", shape, ", got ", given.shape());
  PEAL_CHECK(given.dtype() == x.dtype() || context().autocast, name_, ": expected states in ",
             x.dtype(), ", as the input is, got ", given.dtype());
  const auto i = static_cast<std::int64_t>(k);
  return reshape(given.rows(i, i + 1), {batch, hidden_});
}

Tensors Recurrent::unrolled(const Weights& weights, const Tensor& input, const Tensors& initial,
                            const Tensor& lengths) const {
  const char* order = settings_.batch_first ? "[N, T, " : "[T, N, ";
  PEAL_CHECK((input.dim() == 3 || input.dim() == 2) && input.size(-1) == input_, name_,
             ": expected ", order, input_, "] or [T, ", input_, "], got shape ", input.shape());
  PEAL_CHECK(input.size(0) > 0 && input.size(-2) > 0, name_,
             ": expected at least one sequence of at least one element, got shape ", input.shape());
  PEAL_CHECK(weights.size() == weights_.size(), name_, ": expected ", weights_.size(),
             " sets of weights, got ", weights.size());
  const bool alone = input.dim() == 2;  // one sequence, without a dimension for others
  PEAL_CHECK(!alone || !lengths.defined(), name_, ": lengths are of a batch, got one sequence ",
             input.shape());
  // A weight is cast once here, where several sequences would cast it in turn.
  Tensor y = context().autocast ? lowered(input) : input;
  if (alone) {
    y = unsqueeze(y, 1);
  } else if (settings_.batch_first) {
    y = transpose(y, 0, 1);
  }
  const std::int64_t batch = y.size(1);
  const std::size_t directions = settings_.bidirectional ? 2 : 1;
  std::vector<Tensors> last(states_);
  for (std::size_t k = 0; k < weights.size();) {
    if (k > 0) y = dropout(y, settings_.dropout, training());
    Tensors sides;
    for (std::size_t direction = 0; direction < directions; ++direction, ++k) {
      const Tensor h0 = state_of(initial[0], k, batch, alone, input);
      const Tensor c0 = states_ > 1 ? state_of(initial[1], k, batch, alone, input) : Tensor();
      const RecurrentResult made =
          op_(y, h0, c0, weights[k], {.reverse = direction == 1, .lengths = lengths});
      sides.push_back(made.y);
      last[0].push_back(made.h);
      if (states_ > 1) last[1].push_back(made.c);
    }
    y = directions == 1 ? sides[0] : cat(sides, -1);
  }
  if (alone) {
    y = squeeze(y, 1);
  } else if (settings_.batch_first) {
    y = as_result(transpose(y, 0, 1));
  }
  Tensors results{y};
  for (const Tensors& kind : last) results.push_back(alone ? cat(kind) : stack(kind));
  return results;
}

LSTM::LSTM(std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings)
    : Recurrent("LSTM", 4, lstm, 2, input, hidden, settings) {}

LSTM::Result LSTM::unroll_with(const Weights& weights, const Tensor& x, const Tensor& h0,
                               const Tensor& c0, const Tensor& lengths) const {
  const Tensors all = unrolled(weights, x, {h0, c0}, lengths);
  return {all[0], all[1], all[2]};
}

LSTM::Result LSTM::unroll(const Tensor& x, const Tensor& h0, const Tensor& c0) {
  return unroll_with(weights(), x, h0, c0);
}

LSTM::Result LSTM::unroll_padded(const Tensor& x, const Tensor& lengths, const Tensor& h0,
                                 const Tensor& c0) {
  return unroll_with(weights(), x, h0, c0, lengths);
}

GRU::GRU(std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings)
    : Recurrent(
          "GRU", 3,
          [](const Tensor& x, const Tensor& h0, const Tensor&, const RecurrentWeights& weights,
             const RecurrentOptions& options) { return gru(x, h0, weights, options); },
          1, input, hidden, settings) {}

GRU::Result GRU::unroll_with(const Weights& weights, const Tensor& x, const Tensor& h0,
                             const Tensor& lengths) const {
  const Tensors all = unrolled(weights, x, {h0}, lengths);
  return {all[0], all[1]};
}

GRU::Result GRU::unroll(const Tensor& x, const Tensor& h0) { return unroll_with(weights(), x, h0); }

GRU::Result GRU::unroll_padded(const Tensor& x, const Tensor& lengths, const Tensor& h0) {
  return unroll_with(weights(), x, h0, lengths);
}

RNN::RNN(std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings)
    : Recurrent(
          "RNN", 1,
          settings.nonlinearity == RnnNonlinearity::tanh
              ? +[](const Tensor& x, const Tensor& h0, const Tensor&,
                    const RecurrentWeights& weights,
                    const RecurrentOptions& options) { return rnn_tanh(x, h0, weights, options); }
              : +[](const Tensor& x, const Tensor& h0, const Tensor&,
                    const RecurrentWeights& weights,
                    const RecurrentOptions& options) { return rnn_relu(x, h0, weights, options); },
          1, input, hidden, settings) {}

RNN::Result RNN::unroll_with(const Weights& weights, const Tensor& x, const Tensor& h0,
                             const Tensor& lengths) const {
  const Tensors all = unrolled(weights, x, {h0}, lengths);
  return {all[0], all[1]};
}

RNN::Result RNN::unroll(const Tensor& x, const Tensor& h0) { return unroll_with(weights(), x, h0); }

RNN::Result RNN::unroll_padded(const Tensor& x, const Tensor& lengths, const Tensor& h0) {
  return unroll_with(weights(), x, h0, lengths);
}

}  // namespace peal::nn
