// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/product.h>
#include <peal/autograd/ops/recurrent.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <algorithm>
#include <array>

namespace peal {
namespace {

// The places of the inputs on the tape.
enum : std::size_t { at_x, at_h0, at_c0, at_ih, at_hh, at_bias_ih, at_bias_hh, input_count };
using SequenceInputs = std::array<Tensor, input_count>;

// One step of small ops: from what the input brings to the states after.
Tensors step_of_ops(RecurrentCell cell, const Tensor& from_input, const Tensors& states,
                    const SequenceInputs& in) {
  const Tensor& h = states[0];
  const Tensor products = linear(h, in[at_hh], in[at_bias_hh]);
  const std::int64_t hidden = h.size(1);
  switch (cell) {
    case RecurrentCell::lstm: {
      const Parts gates = split(from_input + products, hidden, 1);
      const Tensor c = sigmoid(gates[1]) * states[1] + sigmoid(gates[0]) * tanh(gates[2]);
      return {sigmoid(gates[3]) * tanh(c), c};
    }
    case RecurrentCell::gru: {
      const Parts i = split(from_input, hidden, 1), s = split(products, hidden, 1);
      const Tensor reset = sigmoid(i[0] + s[0]), update = sigmoid(i[1] + s[1]);
      const Tensor fresh = tanh(i[2] + reset * s[2]);
      return {fresh + update * (h - fresh)};
    }
    case RecurrentCell::tanh:
      return {tanh(from_input + products)};
    case RecurrentCell::relu:
      return {relu(from_input + products)};
  }
  return {};
}

// y and the last states, of small ops.
Tensors sequence_of_ops(const RecurrentGeometry& o, const SequenceInputs& in,
                        const Tensor& lengths) {
  const Tensor all = linear(in[at_x], in[at_ih], in[at_bias_ih]);
  const Parts from_input = split(reshaped(all, {o.steps * o.batch, all.size(2)}), o.batch);
  Tensors states{in[at_h0]}, outputs(static_cast<std::size_t>(o.steps));
  if (o.cell == RecurrentCell::lstm) states.push_back(in[at_c0]);
  for (std::int64_t i = 0; i < o.steps; ++i) {
    const auto t = static_cast<std::size_t>(o.step(i));
    Tensors next = step_of_ops(o.cell, from_input[t], states, in);
    outputs[t] = next[0];
    if (lengths.defined()) {
      const Tensor goes_on = reshaped(gt(lengths, o.step(i)), {o.batch, 1});
      outputs[t] = where(goes_on, next[0], 0.0);
      for (std::size_t k = 0; k < next.size(); ++k) next[k] = where(goes_on, next[k], states[k]);
    }
    states = next;
  }
  states.insert(states.begin(), reshaped(cat(outputs), {o.steps, o.batch, o.hidden}));
  return states;
}

// The gradients as ops, to be differentiated in turn. They are taken of copies, so that none flows
// from one input through another that was made from it.
Tensors sequence_gradients_of_ops(const RecurrentGeometry& o, const std::vector<Saved>& saved,
                                  const Tensor& lengths, const Tensors& grads, Needs needs) {
  const GradMode recorded(true);
  SequenceInputs in;
  Tensors wanted;
  for (std::size_t i = 0; i < input_count; ++i) {
    const Tensor given = saved[i]();
    if (!given.defined()) continue;
    in[i] = reshaped(given, given.shape());
    if (needs[i]) wanted.push_back(in[i]);
  }
  const Tensors made = sequence_of_ops(o, in, lengths);
  Tensors outputs, seeds;
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (!grads[i].defined()) continue;
    outputs.push_back(made[i]);
    seeds.push_back(grads[i]);
  }
  const Tensors found = autograd::grad(
      outputs, wanted, {.grad_outputs = seeds, .create_graph = true, .allow_unused = true});
  Tensors all(input_count);
  auto next = found.begin();
  for (std::size_t i = 0; i < input_count; ++i) {
    if (in[i].defined() && needs[i]) all[i] = *next++;
  }
  return all;
}

// What the kernel made and reads again.
struct SequenceMade {
  Tensor states, inner, gates;
};

Tensors sequence_gradients(std::string_view op, const RecurrentGeometry& o, const Tensor& x,
                           const Tensor& ih, const Tensor& hh, const SequenceMade& made,
                           const Tensor& lengths, const Tensors& grads, Needs needs) {
  const std::int64_t rows = o.steps * o.batch, wide = o.gates() * o.hidden;
  const auto like_x = [&](const Shape& shape) {
    return Tensor::empty(shape, x.dtype(), x.device());
  };
  const auto given = [&](std::size_t i) {
    return i < grads.size() && grads[i].defined()
               ? grads[i].clone()
               : Tensor::zeros({o.batch, o.hidden}, x.dtype(), x.device());
  };
  const bool is_gru = o.cell == RecurrentCell::gru;
  const Tensor dgates = like_x({rows, wide}), dh = given(1);
  const Tensor dc = o.cell == RecurrentCell::lstm ? given(2) : Tensor();
  const Tensor of_products = is_gru ? like_x({rows, wide}) : Tensor();
  kernels(x.device())
      .recurrent_backward(op, x, o, dgates, of_products, dh, dc, grads[0], made.states, made.inner,
                          made.gates, hh, lengths);
  Tensors all(input_count);
  const auto to = [&](std::size_t i) { return needs[i] ? &all[i] : nullptr; };
  const Tensor before = made.states.detach({rows, o.hidden}, o.before(0) * o.batch * o.hidden);
  linear_gradients(op, is_gru ? of_products : dgates, before, to(at_hh), to(at_bias_hh),
                   dgates.dtype());
  // But of gru, the biases are added to each other.
  if (!is_gru && needs[at_bias_hh]) {
    if (needs[at_bias_ih]) all[at_bias_ih] = all[at_bias_hh];
    linear_gradients(op, dgates, x.detach({rows, x.size(2)}), to(at_ih), nullptr, dgates.dtype());
  } else {
    linear_gradients(op, dgates, x.detach({rows, x.size(2)}), to(at_ih), to(at_bias_ih),
                     dgates.dtype());
  }
  if (needs[at_x]) all[at_x] = product(op, dgates, ih, false, false).detach(x.shape());
  if (needs[at_h0]) all[at_h0] = dh;
  if (needs[at_c0]) all[at_c0] = dc;
  return all;
}

void check_sequence(std::string_view op, const SequenceInputs& in, std::int64_t gates) {
  const Tensor &x = in[at_x], &ih = in[at_ih], &hh = in[at_hh];
  check_floating(op, x);
  PEAL_CHECK(x.dim() == 3 && x.size(0) > 0 && x.size(1) > 0, op,
             ": expected x [T, N, input] with T and N above 0, got shape ", x.shape());
  PEAL_CHECK(hh.defined() && hh.dim() == 2 && hh.size(0) == gates * hh.size(1), op,
             ": expected a weight hh [", gates, " hidden, hidden], got shape ",
             hh.defined() ? hh.shape() : Shape{});
  const std::int64_t hidden = hh.size(1);
  const auto check = [&](std::string_view what, std::size_t i, const Shape& shape) {
    if (!in[i].defined()) return;
    check_alike(op, x, in[i]);
    PEAL_CHECK(in[i].shape() == shape, op, ": expected ", what, " ", shape, ", got ",
               in[i].shape());
  };
  PEAL_CHECK(ih.defined(), op, ": the weight ih is undefined");
  check("a weight ih", at_ih, {gates * hidden, x.size(2)});
  check("a weight hh", at_hh, hh.shape());
  check("h0", at_h0, {x.size(1), hidden});
  check("c0", at_c0, {x.size(1), hidden});
  check("a bias_ih", at_bias_ih, {gates * hidden});
  check("a bias_hh", at_bias_hh, {gates * hidden});
  PEAL_CHECK(in[at_bias_ih].defined() == in[at_bias_hh].defined(), op,
             ": expected both biases or neither");
}

// On x's device.
Tensor checked_lengths(std::string_view op, const Tensor& lengths, const Tensor& x) {
  if (!lengths.defined()) return {};
  PEAL_CHECK(lengths.dtype() == DType::i64 && lengths.shape() == Shape{x.size(1)}, op,
             ": expected lengths of i64 [", x.size(1), "], got ", lengths.dtype(), " ",
             lengths.shape());
  for (const std::int64_t length : lengths.to_vector<std::int64_t>()) {
    PEAL_CHECK(length >= 1 && length <= x.size(0), op, ": expected lengths in [1, ", x.size(0),
               "], got ", length);
  }
  return lengths.detach().to(x.device());
}

// x with zeros behind each sequence's end: whatever stands there (a NaN, memory that nobody has
// written), times a gradient of 0, is 0.
Tensor without_padding(const Tensor& x, const Tensor& lengths) {
  const Tensor place = reshaped(arange(x.size(0), DType::i64, x.device()), {x.size(0), 1});
  return where(reshaped(lt(place, lengths), {x.size(0), x.size(1), 1}), x, 0.0);
}

RecurrentResult run_recurrent(std::string_view op, RecurrentCell cell, SequenceInputs in,
                              const RecurrentOptions& options) {
  const OpName name(op);
  if (context().autocast) {
    for (Tensor& each : in) {
      if (each.defined()) each = lowered(each);
    }
  }
  RecurrentGeometry o{cell, in[at_x].dim() == 3 ? in[at_x].size(0) : 0, 0, 0, options.reverse};
  check_sequence(op, in, o.gates());
  const Tensor& x = in[at_x];
  o.batch = x.size(1);
  o.hidden = in[at_hh].size(1);
  const bool is_lstm = cell == RecurrentCell::lstm, is_gru = cell == RecurrentCell::gru;
  for (const std::size_t i : {at_h0, at_c0}) {
    if (in[i].defined() || (i == at_c0 && !is_lstm)) continue;
    in[i] = Tensor::zeros({o.batch, o.hidden}, x.dtype(), x.device());
  }
  const Tensor lengths = checked_lengths(op, options.lengths, x);
  if (lengths.defined()) in[at_x] = without_padding(x, lengths);
  TraceSpan span(op);
  const std::int64_t plane = o.batch * o.hidden;
  const Shape all_states{o.steps + 1, o.batch, o.hidden}, all_steps{o.steps, o.batch, o.hidden};
  const auto like_x = [&](const Shape& shape) {
    return Tensor::empty(shape, x.dtype(), x.device());
  };
  const auto begun_with = [&](const Tensor& first) {
    Tensor states = like_x(all_states);
    const Tensor place = states.detach({o.batch, o.hidden}, o.before(o.step(0)) * plane);
    place.copy_(first.detach());
    return states;
  };
  // But of gru, both biases are added to one sum, in the pass that a step makes anyway.
  Tensor bias = in[at_bias_hh];
  if (bias.defined() && !is_gru) {
    bias = like_x(bias.shape());
    kernels(x.device()).binary(op, x, Binary::add, bias, in[at_bias_ih], in[at_bias_hh]);
  }
  SequenceMade made;
  made.gates = product(op, x.detach({o.steps * o.batch, x.size(2)}), in[at_ih], false, true,
                       is_gru ? in[at_bias_ih] : Tensor());
  made.states = begun_with(in[at_h0]);
  if (is_lstm) made.inner = begun_with(in[at_c0]);
  if (is_gru) made.inner = like_x(all_steps);
  Tensor y = lengths.defined() ? like_x(all_steps) : Tensor();
  kernels(x.device())
      .recurrent(op, x, o, made.states, made.inner, made.gates, y, in[at_hh], bias, lengths);
  const auto last = [&](const Tensor& states) {
    return states.detach({o.batch, o.hidden}, o.after(o.step(o.steps - 1)) * plane).clone();
  };
  // Without lengths y is the states but for the first: no copy.
  if (!y.defined()) y = made.states.detach(all_steps, o.after(0) * plane);
  Tensors outputs{y, last(made.states)};
  if (is_lstm) outputs.push_back(last(made.inner));
  if (!is_lstm && !is_gru) made.gates = {};
  if (wants_grad(in)) {
    std::vector<Saved> saved;
    for (const Tensor& each : in) saved.push_back(save(each));
    outputs =
        record(op, outputs, in,
               [op, o, saved = std::move(saved), states = save(made.states), inner = made.inner,
                gates = made.gates, lengths](const Tensors& grads, Needs needs) {
                 if (backward_is_recorded()) {
                   return sequence_gradients_of_ops(o, saved, lengths, grads, needs);
                 }
                 return sequence_gradients(op, o, saved[at_x](), saved[at_ih](), saved[at_hh](),
                                           {states(), inner, gates}, lengths, grads, needs);
               });
  }
  return {outputs[0], outputs[1], is_lstm ? outputs[2] : Tensor()};
}

}  // namespace

RecurrentResult lstm(const Tensor& x, const Tensor& h0, const Tensor& c0, const RecurrentWeights& w,
                     const RecurrentOptions& options) {
  return run_recurrent("lstm", RecurrentCell::lstm, {x, h0, c0, w.ih, w.hh, w.bias_ih, w.bias_hh},
                       options);
}

RecurrentResult gru(const Tensor& x, const Tensor& h0, const RecurrentWeights& w,
                    const RecurrentOptions& options) {
  return run_recurrent("gru", RecurrentCell::gru, {x, h0, {}, w.ih, w.hh, w.bias_ih, w.bias_hh},
                       options);
}

RecurrentResult rnn_tanh(const Tensor& x, const Tensor& h0, const RecurrentWeights& w,
                         const RecurrentOptions& options) {
  return run_recurrent("rnn_tanh", RecurrentCell::tanh,
                       {x, h0, {}, w.ih, w.hh, w.bias_ih, w.bias_hh}, options);
}

RecurrentResult rnn_relu(const Tensor& x, const Tensor& h0, const RecurrentWeights& w,
                         const RecurrentOptions& options) {
  return run_recurrent("rnn_relu", RecurrentCell::relu,
                       {x, h0, {}, w.ih, w.hh, w.bias_ih, w.bias_hh}, options);
}

}  // namespace peal
