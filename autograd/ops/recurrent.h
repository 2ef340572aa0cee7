// SPDX-License-Identifier: Apache-2.0
// Recurrent layers, each one direction over a whole sequence as one op: one product for all that
// the input brings, then a product with the state and one pass a step; and one product for each
// gradient of a weight, over all steps. Gradients of gradients are made of small ops, step by step.
//
//   lstm      i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of ih x + b_ih + hh h + b_hh
//             c' = f c + i g, h' = o tanh(c') (Hochreiter and Schmidhuber, "Long short-term
//             memory", 1997, with the forget gate of Gers et al., 2000)
//   gru       r, z = sigmoid, sigmoid; n = tanh(ih x + b_ih + r (hh h + b_hh)), h' = n + z (h - n)
//   (Cho et
//             al., 2014, with the reset gate at the product, as cuDNN and PyTorch have it)
//   rnn_tanh, rnn_relu    h' = tanh or relu of ih x + b_ih + hh h + b_hh (Elman, 1990)
//
// Rows of the weights lie gate by gate, in the order above, so the weights are PyTorch's. On the
// CPU f16 and bf16 are computed in f32 within a sequence, and rounded at its end. Under Autocast
// all is low, states too. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// With G gates (4, 3, 1, 1): ih [G H, I], hh [G H, H], and both biases [G H] or neither.
struct RecurrentWeights {
  Tensor ih, hh, bias_ih = {}, bias_hh = {};
};

struct RecurrentOptions {
  bool reverse = false;  // from the last step to the first
  // i64 [N], each in [1, T], on the CPU best: how long each sequence is; undefined: all have T
  // steps. Past its end (where `reverse` then begins at it) a sequence's y is 0 and its state
  // stays, as of PyTorch's packed sequences.
  Tensor lengths = {};
};

// y [T, N, H], and the states after the last step [N, H]; c is lstm's alone.
struct RecurrentResult {
  Tensor y, h, c;
};

// x [T, N, I] with T, N > 0; h0 and c0 [N, H], or undefined for zeros. All of one floating type.
RecurrentResult lstm(const Tensor& x, const Tensor& h0, const Tensor& c0,
                     const RecurrentWeights& weights, const RecurrentOptions& options = {});
RecurrentResult gru(const Tensor& x, const Tensor& h0, const RecurrentWeights& weights,
                    const RecurrentOptions& options = {});
RecurrentResult rnn_tanh(const Tensor& x, const Tensor& h0, const RecurrentWeights& weights,
                         const RecurrentOptions& options = {});
RecurrentResult rnn_relu(const Tensor& x, const Tensor& h0, const RecurrentWeights& weights,
                         const RecurrentOptions& options = {});

}  // namespace peal
