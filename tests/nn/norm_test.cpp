// SPDX-License-Identifier: Apache-2.0
// Layers with statistics or tables, the models made of them, clipping and schedules: keys, modes
// and what they refuse. Their values are held against PyTorch in torch_models.cpp.
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/loss.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/scheduler.h>
#include <peal/nn/optim/sgd.h>
#include <peal/tests/errors.h>

#include <cmath>
#include <stdexcept>

using namespace peal;
using namespace peal::testing;

namespace {

std::vector<std::string> keys(const nn::Module& module) {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : module.state_dict()) all.push_back(name);
  return all;
}

}  // namespace

TEST_CASE("BatchNorm has PyTorch's keys, counts batches, and stands still in evaluation") {
  nn::BatchNorm1d norm(2, {.momentum = 0.5});
  CHECK(keys(norm) == std::vector<std::string>{"weight", "bias", "running_mean", "running_var",
                                               "num_batches_tracked"});
  const Tensor x = Tensor::from<float>({0, 10, 2, 30}, {2, 2});
  CHECK(norm(x).data<float>()[0] == doctest::Approx(-1).epsilon(1e-4));
  CHECK(norm.running_mean.to_vector<float>() == std::vector<float>{0.5f, 10});
  CHECK(norm.running_var.to_vector<float>() == std::vector<float>{1.5f, 100.5f});
  CHECK(norm.num_batches_tracked.item<std::int64_t>() == 1);
  norm.eval();
  CHECK(norm(x).data<float>()[2] == doctest::Approx((2 - 0.5) / std::sqrt(1.5)).epsilon(1e-4));
  CHECK(norm.running_mean.to_vector<float>() == std::vector<float>{0.5f, 10});
  CHECK(norm.num_batches_tracked.item<std::int64_t>() == 1);

  norm.train();
  const Tensor again = x.clone().set_requires_grad();
  sum(checkpoint(norm, again)).backward();
  CHECK(norm.running_mean.to_vector<float>() == std::vector<float>{0.75f, 15});
  CHECK(norm.num_batches_tracked.item<std::int64_t>() == 2);

  nn::BatchNorm2d bare(3, {.affine = false, .track = false});
  CHECK(keys(bare).empty());
  bare.eval();
  CHECK(std::abs(mean(bare(randn({2, 3, 5, 5}))).item<float>()) < 1e-6);
  check_has(error_of([&] { bare(randn({2, 3})); }), "BatchNorm2d: expected [N, C, H, W], got");
  check_has(error_of([&] { norm(randn({2, 3, 1, 1})); }), "BatchNorm1d: expected [N, C] or");
}

TEST_CASE("a norm without a bias has the weight alone, and shifts nothing") {
  const std::vector<nn::Module> norms{nn::BatchNorm1d(4, {.track = false, .bias = false}),
                                      nn::BatchNorm2d(4, {.track = false, .bias = false}),
                                      nn::BatchNorm3d(4, {.track = false, .bias = false}),
                                      nn::GroupNorm(2, 4, {.bias = false}),
                                      nn::InstanceNorm1d(4, {.affine = true, .bias = false}),
                                      nn::InstanceNorm2d(4, {.affine = true, .bias = false}),
                                      nn::InstanceNorm3d(4, {.affine = true, .bias = false}),
                                      nn::LayerNorm(Shape{4, 2}, {.bias = false})};
  const Shape shapes[] = {{3, 4, 2}, {3, 4, 2, 2}, {3, 4, 2, 2, 1}, {3, 4, 2},
                          {3, 4, 2}, {3, 4, 2, 2}, {3, 4, 2, 2, 2}, {3, 4, 2}};
  for (std::size_t i = 0; i < norms.size(); ++i) {
    nn::Module norm = norms[i];
    CAPTURE(norm.repr());
    CHECK(keys(norm) == std::vector<std::string>{"weight"});
    CHECK(norm.repr().find("bias=False") != std::string::npos);
    const Tensor weight = norm.parameters()[0], y = norm(randn(shapes[i]));
    // Each is of mean 0, over what it normalises; twice the weight is twice the output.
    CHECK(std::abs(mean(y).item<float>()) < 1e-6);
    sum(y * y).backward();
    CHECK(weight.grad().shape() == weight.shape());
    const NoGrad guard;
    const Tensor x = randn(shapes[i]), once = norm(x);
    mul_(weight.detach(), 2);
    CHECK(allclose(norm(x), once * 2.0));
  }
  CHECK(keys(nn::BatchNorm2d(4, {.affine = false, .track = false})).empty());
  CHECK(keys(nn::GroupNorm(2, 4, {.affine = false})).empty());
  CHECK(keys(nn::InstanceNorm2d(4)).empty());
}

TEST_CASE("statistics are counted anew for parameters that were averaged, by update_bn") {
  struct Net : nn::Module {
    nn::BatchNorm1d first = add("first", nn::BatchNorm1d(1)),
                    second = add("second", nn::BatchNorm1d(1, {.momentum = std::nullopt})),
                    without = add("without", nn::BatchNorm1d(1, {.track = false}));
    Tensor forward(const Tensor& x) override { return without(second(first(x) * 3)); }
  };
  Net net;
  const Tensor a = Tensor::from<float>({0, 2}, {2, 1}), b = Tensor::from<float>({6, 12}, {2, 1});
  net(b);
  net.eval();
  net.second.train();
  bool wants = true;
  nn::update_bn(net, [&] {
    CHECK(net.training());
    CHECK(net.without.training());
    wants = net(a).requires_grad() || net(b).requires_grad();
  });
  CHECK_FALSE(wants);
  CHECK_FALSE(net.training());
  CHECK_FALSE(net.first.training());
  CHECK(net.second.training());
  CHECK(net.first.running_mean.item<float>() == 5);  // of 1 and 9
  CHECK(net.first.running_var.item<float>() == 10);  // of 2 and 18
  CHECK(net.first.num_batches_tracked.item<std::int64_t>() == 2);
  net.train();
  net(a);  // by the momenta that there were
  CHECK(net.first.running_mean.item<float>() == doctest::Approx(0.9 * 5 + 0.1));
  net.eval();
  CHECK(error_of([&] { nn::update_bn(net, [] { throw std::runtime_error("no data"); }); }) ==
        "no data");
  CHECK_FALSE(net.training());
  nn::BatchNorm1d alone(1);
  nn::update_bn(alone, [&] { alone(b); });
  CHECK(alone.running_mean.item<float>() == 9);
  alone(a);
  CHECK(alone.running_mean.item<float>() == doctest::Approx(0.9 * 9 + 0.1));
  nn::Linear linear(1, 1);
  nn::update_bn(linear, [] { FAIL("there is no norm"); });
}

TEST_CASE("a momentum of none averages over all batches, also after loading") {
  nn::BatchNorm1d norm(1, {.momentum = std::nullopt});
  norm(Tensor::from<float>({0, 2}, {2, 1}));
  norm(Tensor::from<float>({4, 6}, {2, 1}));
  CHECK(norm.running_mean.item<float>() == 3);
  nn::BatchNorm1d other(1, {.momentum = std::nullopt});
  other.load_state_dict(norm.state_dict());
  other(Tensor::from<float>({8, 10}, {2, 1}));
  CHECK(other.running_mean.item<float>() == doctest::Approx(5));
  check_has(error_of([] {
              nn::BatchNorm3d(3)(randn({2, 3, 4}));
            }),
            "BatchNorm3d: expected [N, C, D, H, W], got shape [2, 3, 4]");
}

TEST_CASE("Dropout1d to 3d drop whole channels; AlphaDropout keeps mean and variance") {
  manual_seed(1);
  for (const Shape& rest : {Shape{5}, Shape{5, 3}, Shape{5, 3, 2}}) {
    Shape shape{20, 30};
    for (const std::int64_t size : rest) shape.push_back(size);
    nn::Module layer = nn::Dropout1d(0.25);
    if (rest.dim() == 2) layer = nn::Dropout2d(0.25);
    if (rest.dim() == 3) layer = nn::Dropout3d(0.25);
    const Tensor y = layer(ones(shape));
    const float* at = y.data<float>();
    int dropped = 0;
    for (std::int64_t channel = 0; channel < 600; ++channel) {
      const float first = at[channel * rest.numel()];
      CHECK((first == 0 || first == doctest::Approx(4.0 / 3)));
      dropped += first == 0;
      for (std::int64_t i = 1; i < rest.numel(); ++i)
        CHECK(at[channel * rest.numel() + i] == first);
    }
    CHECK((dropped > 90 && dropped < 210));
    layer.eval();
    CHECK(layer(ones(shape)).to_vector<float>() == ones(shape).to_vector<float>());
  }
  check_has(error_of([] {
              nn::Dropout2d()(ones({2, 3, 4}));
            }),
            "dropout2d: expected [N, C, H, W], got shape [2, 3, 4]");
  const Tensor y = nn::AlphaDropout(0.3)(randn({100000}));
  const double average = mean(y).item<double>();
  CHECK(std::abs(average) < 0.02);
  CHECK(std::abs(mean(y * y).item<double>() - average * average - 1) < 0.03);
}

TEST_CASE("LayerNorm, Embedding, activations and averages") {
  nn::LayerNorm norm(Shape{2, 3});
  CHECK(norm.weight.shape() == Shape{2, 3});
  CHECK(std::abs(mean(norm(randn({4, 2, 3}))).item<float>()) < 1e-6);
  nn::Embedding table(5, 3);
  CHECK(table(Tensor::from<std::int64_t>({4, 0}, {2, 1})).shape() == Shape{2, 1, 3});
  check_has(error_of([&] { table(Tensor::from<std::int64_t>({5}, {1})); }), "index 5 is outside");
  check_has(error_of([] { nn::Embedding(0, 3); }), "Embedding: sizes must be positive");
  const Tensor x = randn({2, 3, 4, 4});
  CHECK(nn::AvgPool2d(2)(x).shape() == Shape{2, 3, 2, 2});
  CHECK(sum(nn::AdaptiveAvgPool2d(1)(x)).item<float>() ==
        doctest::Approx(sum(x).item<float>() / 16).epsilon(1e-4));
  CHECK(sum(nn::Softmax(1)(x)).item<float>() == doctest::Approx(2 * 16));
  CHECK(nn::Sigmoid()(Tensor::zeros({1})).item<float>() == 0.5f);
  CHECK(nn::Tanh()(Tensor::zeros({1})).item<float>() == 0);
  CHECK(nn::GELU()(Tensor::from<float>({100}, {1})).item<float>() == 100);
  nn::Conv2d grouped(4, 6, 3, {.padding = 2, .dilation = 2, .groups = 2});
  CHECK(grouped.weight.shape() == Shape{6, 2, 3, 3});
  CHECK(grouped(randn({1, 4, 5, 5})).shape() == Shape{1, 6, 5, 5});
  nn::MultiheadAttention attention(6, 2, {.causal = true, .batch_first = true});
  CHECK(keys(attention) == std::vector<std::string>{"in_proj_weight", "in_proj_bias",
                                                    "out_proj.weight", "out_proj.bias"});
  const Tensor sequence = randn({2, 5, 6});
  CHECK(attention(sequence).shape() == Shape{2, 5, 6});
  // The first output sees the first input alone.
  const Tensor alone = attention(slice(sequence, 1, 0, 1));
  CHECK(max(abs(slice(attention(sequence), 1, 0, 1) - alone)).item<float>() < 1e-6f);
  check_has(error_of([] { nn::MultiheadAttention(6, 4); }), "4 heads do not divide a width of 6");
  check_has(error_of([] { nn::Conv2d(3, 4, 3, {.groups = 2}); }), "2 groups do not divide 3 and 4");
}

TEST_CASE("GPT learns one batch") {
  manual_seed(2);
  nn::GPT gpt({11, 16, 2, 2, 6});
  CHECK(keys(gpt).size() == 2 + 2 * 12 + 2 + 1);
  CHECK(gpt.named_parameters().size() == keys(gpt).size() - 1);  // the head is the embedding
  CHECK(gpt.lm_head.weight.raw() == gpt.transformer.wte.weight.raw());
  CHECK(nn::GPT({.tie_word_embeddings = false}).named_parameters().size() == 2 + 4 * 12 + 2 + 1);
  nn::SGD optimizer(gpt.parameters(), {.lr = 0.1});
  const Tensor tokens = Tensor::from<std::int64_t>({1, 2, 3, 4, 5, 6}, {1, 6});
  const Tensor next = Tensor::from<std::int64_t>({2, 3, 4, 5, 6, 7}, {6});
  double first = 0, last = 0;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(reshape(gpt(tokens), {-1, 11}), next);
    loss.backward();
    CHECK(nn::clip_grad_norm_(gpt.parameters(), 1.0).item<double>() > 0);
    optimizer.step();
    (step == 0 ? first : last) = loss.item<double>();
  }
  CHECK(last < 0.5 * first);
  check_has(error_of([&] { gpt(Tensor::zeros({1, 7}, DType::i64)); }), "index 6 is outside");
}

TEST_CASE("clipping passes over parameters without a gradient and refuses bad bounds") {
  const Tensor a = Tensor::from<double>({3, 4}, {2}), b = ones({2}, DType::f64);
  a.set_requires_grad();
  b.set_requires_grad();
  sum(a * a).backward();
  CHECK(nn::clip_grad_norm_({a, b}, 100).item<double>() == doctest::Approx(10));
  CHECK(a.grad().to_vector<double>() == std::vector<double>{6, 8});
  CHECK(nn::clip_grad_norm_({a, b}, 5).item<double>() == doctest::Approx(10));
  CHECK(a.grad().data<double>()[0] == doctest::Approx(3).epsilon(1e-6));
  nn::clip_grad_value_({a, b}, 3.5);
  CHECK(a.grad().data<double>()[1] == 3.5);
  check_has(error_of([&] { nn::clip_grad_norm_({a}, -1); }), "expected max_norm >= 0");
}

TEST_CASE("a schedule goes on where it stopped, and says what it refuses") {
  nn::SGD optimizer({ones({1}).set_requires_grad()}, {.lr = 1});
  nn::LRScheduler scheduler(optimizer, nn::warm_up(4, nn::step_lr(2, 0.5)));
  std::vector<double> rates;
  for (int i = 0; i < 9; ++i, scheduler.step()) rates.push_back(optimizer.lr());
  CHECK(rates == std::vector<double>{0.25, 0.5, 0.75, 1, 1, 0.5, 0.5, 0.25, 0.25});
  scheduler.set_steps(5);
  CHECK(optimizer.lr() == 0.5);
  check_has(error_of([] { nn::step_lr(0); }), "step size of at least 1, got 0");
  nn::LRScheduler cycle(optimizer, nn::one_cycle_lr({.max_lr = 1, .total_steps = 2}));
  cycle.step();
  const double last = optimizer.lr();
  cycle.step();  // a loop of two steps may end with step()
  CHECK(optimizer.lr() == last);
  check_has(error_of([&] { cycle.step(); }), "one_cycle_lr: step 3 of 2");
  CHECK(cycle.steps() == 2);
}

TEST_CASE("the losses of pairs and the options of CrossEntropyLoss") {
  const Tensor x = Tensor::from<float>({1, -2}, {2}), t = Tensor::from<float>({0, 1}, {2});
  CHECK(nn::MSELoss()(x, t).item<float>() == 5);
  CHECK(nn::SmoothL1Loss{Reduction::sum}(x, t).item<float>() == 3);
  CHECK(nn::BCEWithLogitsLoss()(x, t).item<double>() ==
        doctest::Approx((std::log1p(std::exp(1.0)) + std::log1p(std::exp(2.0))) / 2));
  const nn::CrossEntropyLoss loss{.ignore_index = 0, .label_smoothing = 1};
  CHECK(loss(Tensor::zeros({2, 4}), Tensor::from<std::int64_t>({0, 2}, {2})).item<double>() ==
        doctest::Approx(std::log(4.0)));
}

TEST_CASE("losses as objects keep their options") {
  const Tensor x = Tensor::from<float>({1, -2}, {1, 2}), p = Tensor::from<float>({0.25, 1}, {1, 2});
  const Tensor y = Tensor::from<std::int64_t>({1}, {1}), w = Tensor::from<float>({3, 5}, {2});
  const auto same = [](const Tensor& a, const Tensor& b) {
    CHECK(a.to_vector<float>() == b.to_vector<float>());
  };
  const auto sum = Reduction::sum;
  same(nn::CrossEntropyLoss{.weight = w, .reduction = sum}(x, y),
       cross_entropy(x, y, {.weight = w, .reduction = sum}));
  same(nn::NLLLoss{.weight = w, .reduction = sum}(x, y), x.detach({}, 1) * -5.0);
  same(nn::L1Loss{sum}(x, p), l1_loss(x, p, sum));
  same(nn::HuberLoss{.delta = 0.5}(x, p), huber_loss(x, p, Reduction::mean, 0.5));
  same(nn::BCEWithLogitsLoss{.pos_weight = w}(x, p),
       binary_cross_entropy_with_logits(x, p, {.pos_weight = w}));
  same(nn::BCELoss({.weight = w})(p, p), binary_cross_entropy(p, p, {.weight = w}));
  same(nn::KLDivLoss({.reduction = Reduction::batchmean})(x, p), kl_div(x, p, {.reduction = sum}));
  same(nn::PoissonNLLLoss({.full = true})(x, p), poisson_nll_loss(x, p, {.full = true}));
  same(nn::GaussianNLLLoss{{.full = true}}(x, p, p), gaussian_nll_loss(x, p, p, {.full = true}));
  same(nn::MultiMarginLoss({.p = 2})(x, y), multi_margin_loss(x, y, {.p = 2}));
  same(nn::MultiLabelSoftMarginLoss()(x, p), multilabel_soft_margin_loss(x, p));
  same(nn::HingeEmbeddingLoss{.margin = 2}(x, p), hinge_embedding_loss(x, p, 2));
  same(nn::MarginRankingLoss{.margin = 2}(x, p, x), margin_ranking_loss(x, p, x, 2));
  same(nn::CosineEmbeddingLoss{}(x, p, ones({1})), cosine_embedding_loss(x, p, ones({1})));
  same(nn::TripletMarginLoss{{.swap = true}}(x, p, w.detach({1, 2})),
       triplet_margin_loss(x, p, w.detach({1, 2}), {.swap = true}));
}
