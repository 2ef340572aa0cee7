// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/dropout.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/shape.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/recurrent.h>

#include <cmath>

namespace peal::nn {

Recurrent::Recurrent(std::string_view name, std::int64_t gates, Step step, std::size_t states,
                     std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings)
    : name_(name),
      step_(step),
      states_(states),
      input_(input),
      hidden_(hidden),
      settings_(settings) {
  PEAL_CHECK(input > 0 && hidden > 0 && settings.num_layers > 0, name,
             ": sizes and num_layers must be positive, got ", input, " -> ", hidden, ", ",
             settings.num_layers, " layers");
  PEAL_CHECK(settings.dropout >= 0 && settings.dropout <= 1, name,
             ": expected a dropout in [0, 1], got ", settings.dropout);
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const std::int64_t directions = settings.bidirectional ? 2 : 1;
  for (std::int64_t layer = 0; layer < settings.num_layers; ++layer) {
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      const auto make = [&](const char* what, const Shape& shape) {
        return add_parameter(concat(what, "_l", layer, direction ? "_reverse" : ""),
                             init::uniform(shape, bound));
      };
      Weights weights;
      weights.ih = make("weight_ih", {gates * hidden, layer == 0 ? input : directions * hidden});
      weights.hh = make("weight_hh", {gates * hidden, hidden});
      if (settings.bias) {
        weights.bias_ih = make("bias_ih", {gates * hidden});
        weights.bias_hh = make("bias_hh", {gates * hidden});
      }
      weights_.push_back(weights);
    }
  }
}

Tensor Recurrent::forward(const Tensor& x) { return unrolled(x, Tensors(states_))[0]; }

Tensor Recurrent::states_of(const Tensor& given, const Shape& shape, const Tensor& x) const {
  if (!given.defined()) return Tensor::zeros(shape, x.dtype(), x.device());
  PEAL_CHECK(given.shape() == shape, name_,
             ": expected states [layers * directions, N, hidden] = ", shape, ", got ",
             given.shape());
  PEAL_CHECK(given.dtype() == x.dtype(), name_, ": expected states in ", x.dtype(),
             ", as the input is, got ", given.dtype());
  return given;
}

Tensor Recurrent::run(const Tensor& x, const Weights& weights, Tensors& states,
                      bool reverse) const {
  // All steps' products with the input at once.
  const Tensor products = linear(x, weights.ih, weights.bias_ih);
  const Tensors from_input = split(reshape(products, {-1, products.size(-1)}), x.size(1));
  Tensors outputs(from_input.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::size_t t = reverse ? outputs.size() - 1 - i : i;
    states = step_(from_input[t], states, weights);
    outputs[t] = states[0];
  }
  return reshape(cat(outputs), {x.size(0), x.size(1), hidden_});
}

Tensors Recurrent::unrolled(const Tensor& input, const Tensors& initial) {
  PEAL_CHECK(input.dim() == 3 && input.size(-1) == input_, name_, ": expected ",
             settings_.batch_first ? "[N, T, " : "[T, N, ", input_, "], got shape ", input.shape());
  PEAL_CHECK(input.size(0) > 0 && input.size(1) > 0, name_,
             ": expected at least one sequence of at least one element, got shape ", input.shape());
  // Under Autocast everything is low, states too (a state in f32 would widen all that follows), and
  // a weight is cast once instead of at each step.
  const auto low = [](const Tensor& tensor) {
    return context().autocast ? lowered(tensor) : tensor;
  };
  const Tensor x = low(input);
  Tensor y = settings_.batch_first ? transpose(x, 0, 1) : x;
  const std::int64_t batch = y.size(1), directions = settings_.bidirectional ? 2 : 1;
  const Shape shape{settings_.num_layers * directions, batch, hidden_};
  std::vector<Tensors> first;  // of each kind of state, one a layer and direction
  for (const Tensor& given : initial) {
    first.push_back(
        split(reshape(states_of(low(given), shape, x), {shape[0] * batch, hidden_}), batch));
  }
  std::vector<Tensors> last(states_);
  for (std::size_t k = 0; k < weights_.size();) {
    if (k > 0) y = dropout(y, settings_.dropout, training());
    Tensors sides;
    for (std::int64_t direction = 0; direction < directions; ++direction, ++k) {
      Tensors states;
      for (const Tensors& kind : first) states.push_back(kind[k]);
      const Weights& own = weights_[k];
      const Weights weights{low(own.ih), low(own.hh), low(own.bias_ih), low(own.bias_hh)};
      sides.push_back(run(y, weights, states, direction == 1));
      for (std::size_t i = 0; i < states_; ++i) last[i].push_back(states[i]);
    }
    y = directions == 1 ? sides[0] : cat(sides, -1);
  }
  Tensors results{settings_.batch_first ? transpose(y, 0, 1) : y};
  for (const Tensors& kind : last) results.push_back(stack(kind));
  return results;
}

LSTM::LSTM(std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings)
    : Recurrent(
          "LSTM", 4,
          [](const Tensor& from_input, const Tensors& states, const Weights& weights) {
            const Tensor all = from_input + linear(states[0], weights.hh, weights.bias_hh);
            const Tensors gates = split(all, states[0].size(-1), -1);
            const Tensor c = sigmoid(gates[1]) * states[1] + sigmoid(gates[0]) * tanh(gates[2]);
            return Tensors{sigmoid(gates[3]) * tanh(c), c};
          },
          2, input, hidden, settings) {}

LSTM::Result LSTM::unroll(const Tensor& x, const Tensor& h0, const Tensor& c0) {
  const Tensors all = unrolled(x, {h0, c0});
  return {all[0], all[1], all[2]};
}

GRU::GRU(std::int64_t input, std::int64_t hidden, const RecurrentSettings& settings)
    : Recurrent(
          "GRU", 3,
          [](const Tensor& from_input, const Tensors& states, const Weights& weights) {
            const Tensor& h = states[0];
            const Tensors i = split(from_input, h.size(-1), -1);
            const Tensors s = split(linear(h, weights.hh, weights.bias_hh), h.size(-1), -1);
            const Tensor reset = sigmoid(i[0] + s[0]), update = sigmoid(i[1] + s[1]);
            const Tensor fresh = tanh(i[2] + reset * s[2]);
            return Tensors{fresh + update * (h - fresh)};
          },
          1, input, hidden, settings) {}

GRU::Result GRU::unroll(const Tensor& x, const Tensor& h0) {
  const Tensors all = unrolled(x, {h0});
  return {all[0], all[1]};
}

}  // namespace peal::nn
