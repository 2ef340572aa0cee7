// SPDX-License-Identifier: Apache-2.0
// LSTM and GRU: keys, states, modes, errors. Their values are held against PyTorch in
// torch_layers.cpp.
#include <peal/autograd/autocast.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/layers/recurrent.h>
#include <peal/nn/optim/adam.h>
#include <peal/tests/errors.h>

using namespace peal;
using namespace peal::testing;

namespace {

double largest_difference(const Tensor& a, const Tensor& b) {
  return max(abs(a - b)).item<double>();
}

}  // namespace

TEST_CASE("keys and shapes are PyTorch's") {
  nn::LSTM lstm(3, 4, {.num_layers = 2, .bidirectional = true});
  std::string keys;
  for (const auto& [name, tensor] : lstm.state_dict()) {
    keys += concat(name, tensor.shape(), " ");
  }
  CHECK(keys ==
        "weight_ih_l0[16, 3] weight_hh_l0[16, 4] bias_ih_l0[16] bias_hh_l0[16] "
        "weight_ih_l0_reverse[16, 3] weight_hh_l0_reverse[16, 4] bias_ih_l0_reverse[16] "
        "bias_hh_l0_reverse[16] weight_ih_l1[16, 8] weight_hh_l1[16, 4] bias_ih_l1[16] "
        "bias_hh_l1[16] weight_ih_l1_reverse[16, 8] weight_hh_l1_reverse[16, 4] "
        "bias_ih_l1_reverse[16] bias_hh_l1_reverse[16] ");
  CHECK(nn::GRU(3, 4, {.bias = false}).state_dict().size() == 2);
  const auto [output, h, c] = lstm.unroll(randn({5, 2, 3}));
  CHECK(output.shape() == Shape{5, 2, 8});
  CHECK(h.shape() == Shape{4, 2, 4});
  CHECK(c.shape() == Shape{4, 2, 4});
}

TEST_CASE("a sequence in two parts, the second from the states of the first, is one sequence") {
  manual_seed(1);
  const Tensor x = randn({3, 9, 2});
  nn::GRU gru(2, 5, {.num_layers = 2, .batch_first = true});
  nn::LSTM lstm(2, 5, {.num_layers = 2, .batch_first = true});
  const auto [first, h] = gru.unroll(slice(x, 1, 0, 4));
  CHECK(largest_difference(cat({first, gru.unroll(slice(x, 1, 4), h).output}, 1), gru(x)) < 1e-6);
  const auto part = lstm.unroll(slice(x, 1, 0, 4));
  const auto rest = lstm.unroll(slice(x, 1, 4), part.h, part.c);
  CHECK(largest_difference(cat({part.output, rest.output}, 1), lstm(x)) < 1e-6);
}

TEST_CASE("dropout is between the layers, and while training alone") {
  manual_seed(1);
  const Tensor x = randn({4, 2, 3});
  nn::LSTM lstm(3, 4, {.num_layers = 2, .dropout = 1});
  const Tensor trained = lstm(x);
  lstm.eval();
  CHECK(largest_difference(trained, lstm(x)) > 0);
  lstm.train();
  // The second layer saw nothing of x.
  CHECK(largest_difference(trained, lstm(x * 2.0)) == 0);
  nn::LSTM one(3, 4, {.dropout = 1});
  const Tensor with = one(x);
  one.eval();
  CHECK(largest_difference(with, one(x)) == 0);
}

TEST_CASE("an LSTM learns to remember the first of a sequence") {
  manual_seed(3);
  struct Net : nn::Module {
    nn::LSTM lstm = add("lstm", nn::LSTM(1, 12));
    nn::Linear head = add("head", nn::Linear(12, 1));
    Tensor forward(const Tensor& x) override { return head(select(lstm(x), 0, -1)); }
  } net;
  nn::Adam optimizer(net.parameters(), {.lr = 0.02});
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    const Tensor x = randn({6, 32, 1});
    optimizer.zero_grad();
    const Tensor loss = mse_loss(net(x), select(x, 0, 0));
    loss.backward();
    optimizer.step();
    if (step < 10) first += loss.item<double>();
    if (step >= 50) last += loss.item<double>();
  }
  CHECK(last < 0.5 * first);
}

TEST_CASE("under Autocast output and states are low, near those in f32, and gradients are f32") {
  manual_seed(5);
  const Tensor x = randn({6, 3, 4});
  nn::LSTM lstm(4, 8, {.num_layers = 2, .bidirectional = true});
  nn::GRU gru(4, 8);
  const Tensor exact = lstm(x), gru_exact = gru(x);
  const Autocast guard(DType::bf16);
  const auto result = lstm.unroll(x);
  for (const Tensor& each : {result.output, result.h, result.c, gru(x)}) {
    CHECK(concat(each.dtype()) == "bf16");
  }
  CHECK(concat(lstm.unroll(x, ones({4, 3, 8}), ones({4, 3, 8})).output.dtype()) == "bf16");
  CHECK(largest_difference(cast(result.output, DType::f32), exact) < 0.03);
  CHECK(largest_difference(cast(gru(x), DType::f32), gru_exact) < 0.03);
  sum(result.output).backward();
  for (const Tensor& p : lstm.parameters()) CHECK(concat(p.grad().dtype()) == "f32");
}

TEST_CASE("what does not fit is refused by name") {
  nn::LSTM lstm(3, 4, {.batch_first = true});
  check_has(error_of([&] { lstm(ones({2, 3})); }), "LSTM: expected [N, T, 3], got shape [2, 3]");
  check_has(error_of([&] { nn::GRU(3, 4)(ones({2, 1, 4})); }), "GRU: expected [T, N, 3], got");
  check_has(error_of([&] {
              lstm.unroll(ones({2, 5, 3}), ones({1, 5, 4}));
            }),
            "LSTM: expected states [layers * directions, N, hidden] = [1, 2, 4], got [1, 5, 4]");
  check_has(error_of([&] {
              lstm.unroll(ones({2, 5, 3}), ones({1, 2, 4}, DType::f64));
            }),
            "LSTM: expected states in f32, as the input is, got f64");
  check_has(error_of([&] { lstm(ones({0, 5, 3})); }), "LSTM: expected at least one sequence");
  check_has(error_of([] { nn::GRU(3, 0); }), "GRU: sizes and num_layers must be positive");
  check_has(error_of([] { nn::LSTM(3, 4, {.dropout = 2}); }), "expected a dropout in [0, 1]");
}
