// SPDX-License-Identifier: Apache-2.0
// A step of an LSTM and of a GRU, element by element, and its gradient: compiled for the host (at
// every vector level) and for CUDA alike. Math is what brings sigmoid and tanh of a C. Thread
// safety: values.
#pragma once

#include <peal/autograd/kernels/functors.h>

namespace peal::functor {

// Hochreiter and Schmidhuber, "Long short-term memory", 1997, with the forget gate of Gers et al.,
// 2000: cell = forget before + input fresh; h = output tanh(cell).
template <class C>
struct LstmGates {
  C input, forget, fresh, output;
};

template <class Math, class C>
PEAL_ELEMENT C lstm_step(LstmGates<C>& gates, C before, C& cell) {
  gates = {Math::sigmoid(gates.input), Math::sigmoid(gates.forget), Math::tanh(gates.fresh),
           Math::sigmoid(gates.output)};
  cell = gates.forget * before + gates.input * gates.fresh;
  return gates.output * Math::tanh(cell);
}

// dc: given of the cell by the step after, made for the step before.
template <class Math, class C>
PEAL_ELEMENT LstmGates<C> lstm_slope(const LstmGates<C>& gates, C before, C cell, C dh, C& dc) {
  const C tangent = Math::tanh(cell);
  const C here = dc + dh * gates.output * (C(1) - tangent * tangent);
  dc = here * gates.forget;
  return {here * gates.fresh * gates.input * (C(1) - gates.input),
          here * before * gates.forget * (C(1) - gates.forget),
          here * gates.input * (C(1) - gates.fresh * gates.fresh),
          dh * tangent * gates.output * (C(1) - gates.output)};
}

// Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014, with the reset
// gate at the product, as cuDNN and PyTorch have it: h = fresh + update (before - fresh).
template <class C>
struct GruGates {
  C reset, update, fresh;
};

template <class Math, class C>
PEAL_ELEMENT C gru_step(GruGates<C>& gates, const GruGates<C>& products, C before) {
  const C reset = Math::sigmoid(gates.reset + products.reset);
  const C update = Math::sigmoid(gates.update + products.update);
  const C fresh = Math::tanh(gates.fresh + reset * products.fresh);
  gates = {reset, update, fresh};
  return fresh + update * (before - fresh);
}

// `inner`: what the product brought to fresh. Of the products the gradients are these, but that of
// fresh times reset. dh: given of the state after, made the part of the state before that needs no
// product.
template <class C>
PEAL_ELEMENT GruGates<C> gru_slope(const GruGates<C>& gates, C inner, C before, C& dh) {
  const C fresh = dh * (C(1) - gates.update) * (C(1) - gates.fresh * gates.fresh);
  const C update = dh * (before - gates.fresh) * gates.update * (C(1) - gates.update);
  dh = dh * gates.update;
  return {fresh * inner * gates.reset * (C(1) - gates.reset), update, fresh};
}

}  // namespace peal::functor
