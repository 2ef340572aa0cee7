// SPDX-License-Identifier: Apache-2.0
// LSTM, GRU, RNN, their cells, WeightDrop and AWD-LSTM: keys, states, modes, errors. Their values
// are held against PyTorch in torch_layers_recurrent.cpp.
#include <peal/autograd/autocast.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/layers/recurrent.h>
#include <peal/nn/layers/recurrent_cell.h>
#include <peal/nn/layers/weight_drop.h>
#include <peal/nn/models/text_classifier.h>
#include <peal/nn/optim/adam.h>
#include <peal/tests/errors.h>

using namespace peal;
using namespace peal::testing;

namespace {

double largest_difference(const Tensor& a, const Tensor& b) {
  return max(abs(a - b)).item<double>();
}

// As many rows as are past `length`.
Tensor past_of(const Tensor& x, std::int64_t length) {
  return Tensor::zeros(slice(x, 0, length).shape(), x.dtype());
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
  check_has(error_of([&] {
              lstm(ones({2, 4}));
            }),
            "LSTM: expected [N, T, 3] or [T, 3], got shape [2, 4]");
  check_has(error_of([&] {
              nn::GRU(3, 4)(ones({2, 1, 4}));
            }),
            "GRU: expected [T, N, 3] or [T, 3], got");
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
  const auto lengths = [](std::vector<std::int64_t> values) {
    return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  };
  const Tensor x = ones({2, 5, 3});
  check_has(error_of([&] {
              lstm.unroll_padded(x, lengths({6, 2}));
            }),
            "lstm: expected lengths in [1, 5], got 6");
  check_has(error_of([&] { lstm.unroll_padded(x, lengths({5, 0})); }), "in [1, 5], got 0");
  check_has(error_of([&] { lstm.unroll_padded(x, lengths({5})); }),
            "lstm: expected lengths of i64 [2], got i64 [1]");
  check_has(error_of([&] {
              lstm.unroll_padded(ones({5, 3}), lengths({5}));
            }),
            "LSTM: lengths are of a batch, got one sequence [5, 3]");
  check_has(error_of([&] {
              lstm.unroll(ones({5, 3}), ones({1, 1, 4}));
            }),
            "LSTM: expected states [layers * directions, hidden] = [1, 4], got [1, 1, 4]");
  check_has(error_of([] { nn::LSTM(3, 4, {.nonlinearity = nn::RnnNonlinearity::relu}); }),
            "LSTM: a nonlinearity is RNN's to choose");
  check_has(error_of([] {
              nn::GRUCell(3, 4)(ones({2, 4}));
            }),
            "GRUCell: expected [N, 3] or [3], got shape [2, 4]");
  check_has(error_of([] {
              nn::GRUCell(3, 4)(ones({2, 3}), ones({1, 4}));
            }),
            "GRUCell: expected a state [2, 4], got [1, 4]");
  check_has(error_of([] { nn::WeightDrop(nn::GRU(3, 4), 2); }), "probability must be in [0, 1]");
  check_has(error_of([] { nn::WeightDrop(nn::GRU(3, 4), 0.5, {"weight_hh_l1"}); }),
            "WeightDrop: the layer has no weight 'weight_hh_l1'");
  const RecurrentWeights weights{ones({16, 3}), ones({16, 4}), ones({16}), {}};
  check_has(error_of([&] {
              peal::lstm(ones({5, 2, 3}), {}, {}, weights);
            }),
            "lstm: expected both biases or neither");
  check_has(error_of([&] {
              gru(ones({5, 2, 3}), {}, weights);
            }),
            "gru: expected a weight hh [3 hidden, hidden], got shape [16, 4]");
  check_has(error_of([&] {
              peal::lstm(ones({5, 2, 3}), ones({1, 4}), {}, weights);
            }),
            "lstm: expected h0 [2, 4], got [1, 4]");
}

TEST_CASE("what lies past a sequence's end counts for nothing, forwards and backwards") {
  manual_seed(2);
  const Tensor lengths = Tensor::from<std::int64_t>({2, 5, 3}, {3});
  Tensor x = randn({5, 3, 4}).set_requires_grad();
  nn::LSTM lstm(4, 6, {.num_layers = 2, .bidirectional = true});
  const auto whole = lstm.unroll_padded(x, lengths);
  whole.output.backward(ones(whole.output.shape()), true);
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::int64_t length = lengths.to_vector<std::int64_t>()[static_cast<std::size_t>(i)];
    const Tensor alone = slice(x.detach().clone(), 0, 0, length);
    const auto part = lstm.unroll(select(alone, 1, i));
    const Tensor output = select(whole.output, 1, i);
    CHECK(largest_difference(slice(output, 0, 0, length), part.output) < 1e-6);
    CHECK(largest_difference(select(whole.h, 1, i), part.h) < 1e-6);
    CHECK(largest_difference(select(whole.c, 1, i), part.c) < 1e-6);
    if (length == 5) continue;
    CHECK(largest_difference(slice(output, 0, length), past_of(output, length)) == 0);
    CHECK(largest_difference(slice(select(x.grad(), 1, i), 0, length),
                             past_of(select(x.grad(), 1, i), length)) == 0);
  }
}

TEST_CASE("a cell's steps are the layer's sequence") {
  manual_seed(4);
  const Tensor x = randn({4, 3, 5});
  nn::LSTM lstm(5, 6);
  nn::LSTMCell cell(5, 6);
  nn::GRU gru(5, 6);
  nn::GRUCell gru_cell(5, 6);
  const auto share = [](nn::Module layer, nn::Module one) {
    NamedTensors state;
    for (const auto& [name, tensor] : layer.state_dict()) {
      state.emplace_back(name.substr(0, name.size() - 3), tensor);
    }
    one.load_state_dict(state);
  };
  share(lstm, cell);
  share(gru, gru_cell);
  Tensor h, c, gru_h;
  const Tensor all = lstm(x), gru_all = gru(x);
  for (std::int64_t t = 0; t < 4; ++t) {
    const Tensor now = select(x, 0, t);
    std::tie(h, c) = cell.step(now, h, c).fields();
    gru_h = gru_cell.step(now, gru_h);
    CHECK(largest_difference(h, select(all, 0, t)) < 1e-6);
    CHECK(largest_difference(gru_h, select(gru_all, 0, t)) < 1e-6);
  }
}

TEST_CASE(
    "WeightDrop runs a sequence with what dropout leaves of the weight, and keeps fastai's keys") {
  manual_seed(6);
  const Tensor x = randn({4, 3, 5});
  nn::LSTM lstm(5, 6);
  nn::WeightDrop drop(lstm, 0.5);
  std::string keys;
  for (const auto& [name, tensor] : drop.state_dict()) keys += name + " ";
  CHECK(keys == "weight_hh_l0_raw module.weight_ih_l0 module.bias_ih_l0 module.bias_hh_l0 ");
  manual_seed(7);
  const auto dropped = drop.unroll(x);
  manual_seed(7);
  nn::Recurrent::Weights weights = lstm.weights();
  const Tensor mask = dropout(ones({24, 6}), 0.5);
  weights[0].hh = weights[0].hh * mask;
  const auto expected = lstm.unroll_with(weights, x);
  CHECK(largest_difference(dropped.output, expected.output) == 0);
  CHECK(largest_difference(dropped.output, lstm(x)) > 0);
  sum(dropped.output).backward();
  const Tensor raw = drop.named_parameters()[0].second;
  const Tensor of_dropped = raw.grad() * cast(eq(mask, 0), DType::f32);
  CHECK(max(abs(of_dropped)).item<double>() == 0);
  CHECK(max(abs(raw.grad())).item<double>() > 0);
  drop.eval();
  CHECK(largest_difference(drop(x), lstm(x)) == 0);
  // Several weights by name, others stay.
  nn::WeightDrop two(nn::GRU(3, 4, {.bidirectional = true}), 0.5,
                     {"weight_ih_l0", "weight_hh_l0_reverse"});
  keys.clear();
  for (const auto& [name, tensor] : two.state_dict()) keys += name + " ";
  CHECK(keys ==
        "weight_ih_l0_raw weight_hh_l0_reverse_raw module.weight_hh_l0 module.bias_ih_l0 "
        "module.bias_hh_l0 module.weight_ih_l0_reverse module.bias_ih_l0_reverse "
        "module.bias_hh_l0_reverse ");
}

TEST_CASE("a weight written between forward and backward is refused") {
  nn::LSTM lstm(3, 4);
  const Tensor loss = sum(lstm(randn({3, 2, 3})));
  fill_(lstm.weights()[0].hh, 1);
  check_has(error_of([&] { loss.backward(); }), "has since been written in place");
}

TEST_CASE("output and last states are tensors of their own") {
  nn::LSTM lstm(3, 4);
  const auto made = lstm.unroll(randn({3, 2, 3}).set_requires_grad());
  const Tensor h = made.h.detach();
  fill_(h, 7);
  CHECK(largest_difference(made.output, ones({})) < 3);  // h's 7 is not the output's
  sum(made.output).backward();
}

TEST_CASE("what a classifier says of a text does not depend on the texts beside it") {
  nn::AwdLstmSettings small = nn::awd_lstm_classifier(12, 0);
  small.emb_sz = 6;
  small.n_hid = 8;
  small.n_layers = 2;
  nn::AwdTextClassifier model(small, 3, {.seq_len = 4, .max_len = 12});
  model.eval();
  const NoGrad guard;
  // Of 9, 8 and 1 tokens; 1 is padding.
  const Tensor all = tensor({{2, 5, 6, 7, 8, 9, 10, 11, 3, 1, 1, 1},
                             {1, 1, 1, 1, 2, 9, 4, 7, 8, 5, 5, 6},
                             {1, 1, 1, 1, 1, 1, 1, 1, 4, 1, 1, 1}});
  const Tensor together = model(all);
  const std::int64_t begins[] = {0, 4, 8}, ends[] = {9, 12, 9};
  for (std::int64_t row = 0; row < 3; ++row) {
    const Tensor alone = model(slice(all.rows(row, row + 1), 1, begins[row], ends[row]));
    CHECK(largest_difference(alone, together.rows(row, row + 1)) < 1e-5);
  }
  // Of 7 and 3 tokens: padding stands before a text, among the last seq_len tokens.
  const Tensor uneven = tensor({{2, 5, 6, 7, 8, 9, 10}, {1, 1, 1, 1, 4, 5, 6}});
  CHECK(largest_difference(model(tensor({{4, 5, 6}})), model(uneven).rows(1, 2)) < 1e-5);
  // The one of 8 tokens as fastai pads it, beside one of 9: nothing of it is in the last part.
  const Tensor short_of = tensor(
      {{2, 5, 6, 7, 8, 9, 10, 11, 3}, {2, 9, 4, 7, 8, 5, 5, 6, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 4}});
  check_has(error_of([&] { model(short_of); }),
            "text 2 has a token at place 8, where a part begins, and text 1 has none; expected the "
            "longest first, each to the last part of bptt = 4");
}

TEST_CASE("a language model's rows go along by word") {
  nn::AwdLstmSettings small = nn::awd_lstm_language_model(3);
  small.emb_sz = 4;
  small.n_hid = 5;
  small.n_layers = 1;
  const nn::AwdLanguageModel model(small);
  const NamedTensors state =
      nn::match_words(model.state_dict(), {"a", "b", "c"}, {"c", "new", "a", "d"});
  small.vocabulary = 4;
  nn::AwdLanguageModel other(small);
  other.load_state_dict(state);
  const Tensor from = model.encoder.encoder.weight, to = other.encoder.encoder.weight;
  const NoGrad guard;
  CHECK(largest_difference(to.rows(0, 1), from.rows(2, 3)) == 0);
  CHECK(largest_difference(to.rows(2, 3), from.rows(0, 1)) == 0);
  for (const int row : {1, 3}) {
    CHECK(largest_difference(to.rows(row, row + 1), mean(from, {0}, true)) < 1e-6);
  }
  check_has(error_of([&] { nn::match_words(model.state_dict(), {"a"}, {"a"}); }),
            "match_words: 0.encoder.weight has [3, 4], and there are 1 words");
}

TEST_CASE("clean_raw_keys leaves out the second name of a dropped weight, and nothing else") {
  nn::AwdLstmSettings small = nn::awd_lstm_language_model(3);
  small.emb_sz = 4;
  small.n_hid = 5;
  const nn::AwdLanguageModel model(small);
  const auto names = [](const NamedTensors& state) {
    std::string all;
    for (const auto& [name, tensor] : state) all += name + " ";
    return all;
  };
  const NamedTensors own = model.state_dict();
  NamedTensors older = own;
  for (const auto& [name, tensor] : own) {
    const std::size_t raw = name.find("weight_hh_l0_raw");
    if (raw == std::string::npos) continue;
    older.emplace_back(name.substr(0, raw) + "module.weight_hh_l0", tensor);
  }
  CHECK(older.size() == own.size() + 3);
  CHECK(names(nn::clean_raw_keys(older)) == names(own));
  CHECK(names(nn::clean_raw_keys(own)) == names(own));
}
