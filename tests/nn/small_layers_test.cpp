// SPDX-License-Identifier: Apache-2.0
// What small layers and attention do that PyTorch has no line for, and what they refuse.
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/weight_norm.h>
#include <peal/tests/errors.h>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::testing;

namespace {

void check_close(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const auto x = a.to_vector<float>(), y = b.to_vector<float>();
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(x[i] == doctest::Approx(y[i]).epsilon(1e-5));
}

}  // namespace

TEST_CASE("fewer heads of keys and values stand for several of queries") {
  manual_seed(1);
  nn::MultiheadAttention grouped(8, 4, {.kv_heads = 2, .batch_first = true});
  CHECK(grouped.k_proj_weight.shape() == Shape{4, 8});
  CHECK(grouped.in_proj_bias.shape() == Shape{16});
  const Tensor x = randn({2, 5, 8});
  // The same keys and values for two heads each.
  const auto twice = [](const Tensor& w) {  // [heads D, in], D = 2
    const Tensor heads = reshape(w, {2, 1, 2, 8});
    return reshape(cat({heads, heads}, 1), {8, 8});
  };
  nn::MultiheadAttention whole(8, 4, {.batch_first = true});
  whole.load_state_dict(
      {{"in_proj_weight",
        cat({grouped.q_proj_weight, twice(grouped.k_proj_weight), twice(grouped.v_proj_weight)})},
       {"in_proj_bias", Tensor::zeros({24})},
       {"out_proj.weight", grouped.out_proj.weight},
       {"out_proj.bias", grouped.out_proj.bias}});
  check_close(grouped(x), whole(x));
  const auto [y, weights] = grouped(x, x, x, {.need_weights = true, .average_attn_weights = false});
  check_close(y, whole(x));
  CHECK(weights.shape() == Shape{2, 4, 5, 5});
  check_has(error_of([] { nn::MultiheadAttention(8, 4, {.kv_heads = 3}); }),
            "MultiheadAttention: 3 heads of keys and values do not divide 4 heads");
}

TEST_CASE("a query that sees no key gets the output's bias, and finite gradients") {
  manual_seed(1);
  nn::MultiheadAttention attention(4, 2, {.batch_first = true});
  const Tensor x = randn({1, 3, 4}).set_requires_grad();
  const Tensor all = cast(ones({1, 3}), DType::boolean);
  const Tensor y = attention(x, x, x, {.key_padding_mask = all}).output;
  for (const float value : y.to_vector<float>()) CHECK(value == 0);
  sum(y).backward();
  for (const float value : x.grad().to_vector<float>()) CHECK(value == 0);
  check_has(error_of([&] {
              attention(x, x, x, {.attn_mask = ones({2, 3})});
            }),
            "expected an attn_mask [3, 3] or [2, 3, 3], got shape [2, 3]");
}

TEST_CASE("attention drops probabilities while training alone") {
  manual_seed(1);
  nn::MultiheadAttention attention(4, 2, {.dropout = 0.5, .batch_first = true});
  const Tensor x = randn({1, 3, 4});
  CHECK(attention(x).to_vector<float>() != attention(x).to_vector<float>());
  attention.eval();
  CHECK(attention(x).to_vector<float>() == attention(x).to_vector<float>());
}

TEST_CASE("a table that there is, frozen or trained") {
  const Tensor table = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
  const Tensor ids = Tensor::from<std::int64_t>({1, 0}, {2});
  nn::Embedding frozen = nn::Embedding::from_pretrained(table);
  CHECK(frozen(ids).to_vector<float>() == std::vector<float>{3, 4, 1, 2});
  CHECK_FALSE(frozen.weight.requires_grad());
  CHECK(nn::Embedding::from_pretrained(table, false).weight.requires_grad());
  check_has(error_of([&] { nn::Embedding::from_pretrained(table, true, {.padding_idx = 2}); }),
            "padding_idx 2 is not one of 2 rows");
}

TEST_CASE("what small layers refuse") {
  check_has(error_of([] { nn::GroupNorm(4, 6); }), "4 groups do not divide 6 channels");
  nn::InstanceNorm2d norm(3);
  check_has(error_of([&] { norm(ones({2, 3, 1, 1})); }), "more than one element a channel");
  check_has(error_of([&] { norm(ones({2, 4, 3, 3})); }), "InstanceNorm2d: expected [N, 3]");
  check_has(error_of([] { nn::ReflectionPad2d({1, 2, 3}); }), "expected 4 numbers, got 3");
  check_has(error_of([] { nn::ReflectionPad1d(3)(ones({2, 3})); }), "at most 2 elements");
  check_has(error_of([] { nn::Unflatten(1, {2, 2})(ones({2, 5})); }), "do not make up dimension 1");
  check_has(error_of([] { nn::PixelShuffle(2)(ones({3, 2, 2})); }), "do not divide 3 channels");
  nn::EmbeddingBag bag(4, 2);
  check_has(error_of([&] { bag(arange(3)); }), "an index [3] needs i64 offsets [B]");
  check_has(error_of([&] { bag(arange(3), arange(2) + arange(2) * 3); }), "offsets that rise");
}

TEST_CASE("a transformer's layers begin alike, and go ways of their own") {
  manual_seed(1);
  nn::TransformerEncoderLayer layer(4, 2,
                                    {.dim_feedforward = 3, .dropout = 0, .batch_first = true});
  layer.linear1.requires_grad_(false);
  const std::uint64_t drawn = context().generator.offset;
  nn::TransformerEncoder encoder(layer, 2);
  CHECK(context().generator.offset == drawn);
  CHECK(encoder.parameters().size() == 24);
  const Tensor first = encoder.get_parameter("layers.0.linear1.weight"),
               second = encoder.get_parameter("layers.1.linear1.weight");
  check_close(first, second);
  check_close(first, layer.linear1.weight);
  CHECK_FALSE(first.requires_grad());
  first.zero_();
  CHECK(max(abs(second)).item<float>() > 0);
  CHECK(max(abs(layer.linear1.weight)).item<float>() > 0);
  int calls = 0;  // of hooks of one of them
  encoder.layers[1].add_hook([&](nn::Module&, const Tensor&, const Tensor&) {
    ++calls;
    return Tensor();
  });
  encoder(randn({1, 3, 4}), {.is_causal = true});
  CHECK(calls == 1);
}

TEST_CASE("dropout of a transformer is drawn while training alone") {
  nn::Transformer model(4, 2, 1, 1, {.dim_feedforward = 3, .dropout = 0.5, .batch_first = true});
  const Tensor src = randn({2, 3, 4}), tgt = randn({2, 2, 4});
  const auto values = [&] { return model(src, tgt).to_vector<float>(); };
  CHECK(values() != values());
  model.eval();
  CHECK(values() == values());
}

TEST_CASE("what a transformer cannot take is said") {
  check_has(error_of([] { nn::TransformerSettings{.activation = "swish"}; }),
            "expected the activation relu or gelu, or a function, got swish");
  nn::Transformer model(4, 2, 1, 1, {.dim_feedforward = 3});
  check_has(error_of([&] {
              model(randn({3, 2, 4}), randn({3, 3, 4}));
            }),
            "Transformer: expected src and tgt [S, B, width] and [T, B, width], got shapes "
            "[3, 2, 4] and [3, 3, 4]");
  nn::Transformer batches(4, 2, 1, 1, {.dim_feedforward = 3, .batch_first = true});
  check_has(error_of([&] {
              batches(randn({2, 3, 4}), randn({3, 3, 4}));
            }),
            "Transformer: expected src and tgt [B, S, width] and [B, T, width], got shapes "
            "[2, 3, 4] and [3, 3, 4]");
}

TEST_CASE("a generator and a discriminator learn from each other, as DCGAN's") {
  using namespace nn;
  manual_seed(3);
  Sequential generator(ConvTranspose2d(6, 8, 4, {.bias = false}), BatchNorm2d(8), ReLU(),
                       ConvTranspose2d(8, 4, 4, {.stride = 2, .padding = 1, .bias = false}),
                       BatchNorm2d(4), ReLU(),
                       ConvTranspose2d(4, 1, 4, {.stride = 2, .padding = 1}), Tanh());
  Sequential judge(Conv2d(1, 4, 4, {.stride = 2, .padding = 1}), LeakyReLU(0.2),
                   Conv2d(4, 8, 4, {.stride = 2, .padding = 1, .bias = false}), BatchNorm2d(8),
                   LeakyReLU(0.2), Conv2d(8, 1, 4), Sigmoid(), Flatten(0));
  Adam generator_steps(generator.named_parameters(), {.lr = 0.01});
  Adam judge_steps(judge.named_parameters(), {.lr = 0.01});
  const Tensor real = tanh(randn({8, 1, 16, 16}) + 1.0), noise = randn({8, 6, 1, 1});
  REQUIRE(generator(noise).shape() == Shape{8, 1, 16, 16});
  const BCELoss loss;
  const auto judged = [&](const Tensor& images, double truth) {
    return loss(judge(images), full({8}, 1. * truth));
  };
  const auto first = [](const Module& net) { return net.parameters()[0].to_vector<float>(); };
  std::vector<float> of_judge, of_generator;
  for (int step = 0; step < 6; ++step) {
    const Tensor before = judged(real, 1) + judged(generator(noise).detach(), 0);
    const auto untouched = first(generator);
    judge_steps.zero_grad();
    before.backward();
    judge_steps.step();
    CHECK(first(generator) == untouched);
    of_judge.push_back(before.item<float>());

    const auto kept = first(judge);
    const Tensor fooled = judged(generator(noise), 1);
    generator_steps.zero_grad();
    fooled.backward();
    generator_steps.step();
    CHECK(first(judge) == kept);
    CHECK(first(generator) != untouched);
    of_generator.push_back(fooled.item<float>());
    CHECK(judged(generator(noise), 1).item<float>() < of_generator.back());
  }
  CHECK(of_judge.back() < of_judge.front());
}

TEST_CASE("what convolutions refuse, and how they say sizes") {
  using nn::ConvTranspose2d;
  check_has(error_of([] { ConvTranspose2d(3, 4, 3, {.groups = 2}); }),
            "ConvTranspose2d: 2 groups do not divide 3 and 4 channels");
  check_has(error_of([] {
              ConvTranspose2d(2, 4, 3, {.output_padding = 1})(ones({1, 2, 3, 3}));
            }),
            "an output_padding below the larger of stride 1 and dilation 1, got 1");
  check_has(error_of([] {
              ConvTranspose2d(2, 4, 3)(ones({1, 3, 3, 3}));
            }),
            "conv_transpose2d: expected an input [N, C, H, W] and a weight");
  check_has(error_of([] {
              ConvTranspose2d(2, 4, 3, {.padding = 3})(ones({1, 2, 3, 3}));
            }),
            "with padding 3 leaves nothing of input [1, 2, 3, 3]");
  check_has(error_of([] {
              ConvTranspose2d(2, 4, 3, {.stride = 2}).forward_to(ones({1, 2, 3, 3}), {7, 9});
            }),
            "expected a size of 7 to 8 in dimension -1");
  check_has(error_of([] { nn::Conv2d(2, 4, 3, {.padding = "some"}); }), "got \"some\"");
  check_has(error_of([] {
              nn::Conv1d(2, 4, 3, {.stride = 2, .padding = "same"})(ones({2, 5}));
            }),
            "conv1d: a padding of \"same\" is for strides of 1, got 2");
  check_has(error_of([] { nn::Conv3d(2, 4, 3)(ones({1, 2, 2, 5, 5})); }), "conv3d: a kernel of");
  check_has(error_of([] {
              nn::Fold({3, 4}, 2)(ones({8, 5}));
            }),
            "one for each of 6 windows, got shape [8, 5]");
  check_has(error_of([] { unfold(ones({2, 3}), 1, 4, 1); }), "windows of 1 to 3 elements");
}

TEST_CASE(
    "normalised weights are made anew in each call, are trained through, and keep their norms") {
  manual_seed(2);
  nn::Linear plain(3, 4);
  nn::Linear layer = nn::weight_norm(plain);
  CHECK(layer.state_dict().size() == 3);
  CHECK(equal(layer.weight, layer.get_parameter("weight_v")));
  const Tensor x = randn({2, 3});
  const Tensor before = layer(x).detach();
  {
    const NoGrad guard;
    mul_(layer.get_parameter("weight_v"), 4);
    mul_(layer.get_parameter("weight_g"), 2);
  }
  check_close(layer(x) - layer.bias, (before - layer.bias) * 2);
  check_close(norm(layer.weight.detach(), 2, {1}, true), layer.get_parameter("weight_g").detach());
  sum(layer(x)).backward();
  CHECK(layer.get_parameter("weight_g").grad().defined());
  check_has(error_of([&] { nn::weight_norm(layer); }), "it has no parameter 'weight' of its own");
  nn::Linear other(3, 4);
  check_has(error_of([&] { nn::weight_norm(other, "weight", 2); }),
            "weight_norm: there is no dimension 2 of [4, 3]");
  check_has(error_of([&] { nn::spectral_norm(other, "weight", {.dim = 2}); }),
            "spectral_norm: there is no dimension 2 of [4, 3]");
  CHECK(other.state_dict().size() == 2);  // it has its weight still

  nn::ConvTranspose1d turned = nn::weight_norm(nn::ConvTranspose1d(2, 3, 2, {.stride = 2}));
  for (int step = 1; step <= 2; ++step) {
    sum(turned.forward_to(ones({1, 2, 2}), 5)).backward();
    CHECK(turned.get_parameter("weight_v").grad().defined());
  }

  nn::Linear spectral = nn::spectral_norm(nn::Linear(3, 4));
  for (int i = 0; i < 100; ++i) spectral(x);
  const Tensor u = spectral.get_buffer("weight_u").clone();
  const Tensor w = spectral.weight.detach();
  CHECK(norm(mv(transpose(w, 0, 1), u)).item<float>() == doctest::Approx(1).epsilon(1e-4));
  nn::Linear fresh = nn::spectral_norm(nn::Linear(3, 4));
  const Tensor y = checkpoint(fresh, x.clone().set_requires_grad());
  const Tensor once = fresh.get_buffer("weight_u").clone();
  sum(y).backward();
  CHECK(equal(fresh.get_buffer("weight_u"), once));
  spectral.eval();
  spectral(x);
  CHECK(equal(spectral.get_buffer("weight_u"), u));
  check_has(
      error_of([] { nn::spectral_norm(nn::Linear(3, 4), "weight", {.n_power_iterations = 0}); }),
      "n_power_iterations: expected at least 1, got 0");
}

TEST_CASE("the adaptive softmax's loss is of its log-probabilities, whichever tails have targets") {
  manual_seed(5);
  nn::AdaptiveLogSoftmaxWithLoss softmax(8, 12, {3, 7}, 2);
  softmax.to(DType::f32);
  const Tensor x = randn({40, 8}) * 6, all = softmax.log_prob(x);
  check_close(sum(exp(all), {1}), ones({40}));
  for (const auto& [low, high] : {std::pair(0, 12), std::pair(0, 3), std::pair(7, 12)}) {
    const Tensor target = randint(low, high, {40});
    const auto [output, loss] = softmax(x, target);
    check_close(output, squeeze(gather(all, 1, unsqueeze(target, 1)), 1));
    check_close(loss, -mean(output));
    const auto one = softmax(x[3], target[3]);
    check_close(one.output, output[3]);
    CHECK(one.output.dim() == 0);
  }
  const Tensor likeliest = softmax.predict(x);
  CHECK(equal(likeliest, argmax(all, 1)));
  CHECK(min(likeliest).item<std::int64_t>() < 3);   // the head's
  CHECK(max(likeliest).item<std::int64_t>() >= 7);  // and the last tail's
  // A tail without targets does not run.
  softmax(x, randint(0, 7, {40})).loss.backward();
  CHECK(softmax.get_parameter("tail.0.0.weight").grad().defined());
  CHECK(!softmax.get_parameter("tail.1.0.weight").grad().defined());
  check_has(error_of([&] { softmax(x.rows(0, 0), Tensor::zeros({0}, DType::i64)); }),
            "mean: no elements to average");
}

TEST_CASE("what the adaptive softmax refuses") {
  using nn::AdaptiveLogSoftmaxWithLoss;
  check_has(error_of([] { AdaptiveLogSoftmaxWithLoss(8, 20, {}); }),
            "expected at least one cutoff");
  for (const std::vector<std::int64_t>& cutoffs :
       {std::vector<std::int64_t>{4, 4}, {10, 4}, {0, 3}, {20}}) {
    check_has(error_of([&] { AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs); }),
              "expected cutoffs that rise between 1 and n_classes - 1, 19, got ");
  }
  check_has(error_of([] {
              AdaptiveLogSoftmaxWithLoss(8, 20, {4, 10});
            }),
            "tail 1 has 8 / 4^2 hidden features, which is less than one");
  AdaptiveLogSoftmaxWithLoss softmax(8, 20, {4, 10}, 2);
  const Tensor x = ones({2, 8});
  for (const Tensor& target : {tensor({1, 20}), tensor({-1, 1}), tensor({-1, 20})}) {
    check_has(error_of([&] { softmax(x, target); }), "expected targets in [0, 19], got them in [");
  }
  for (const Tensor& target :
       {tensor({1}), Tensor::scalar(1), tensor({{1}, {2}}), tensor({1., 2.})}) {
    check_has(error_of([&] { softmax(x, target); }), "expected x [N, in_features] and target [N]");
  }
  check_has(error_of([&] { softmax.log_prob(x[0]); }), "log_prob expected [N, in_features]");
  check_has(error_of([&] { softmax.predict(x[0]); }), "predict expected [N, in_features]");
}
