// SPDX-License-Identifier: Apache-2.0
// Layers: shapes, initial values, modes; and BasicNet learns.
#include <peal/autograd/ops/ops.h>
#include <peal/nn/functional.h>
#include <peal/nn/init.h>
#include <peal/nn/loss.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/optim/sgd.h>
#include <peal/tests/errors.h>

#include <algorithm>
#include <cmath>

using namespace peal;
using namespace peal::testing;

namespace {

// Mean 0 and standard deviation bound / sqrt(3), inside the bound, for `sigmas` errors of the mean.
void check_uniform(const Tensor& tensor, double bound) {
  const std::vector<float> values = tensor.to_vector<float>();
  double total = 0, squares = 0;
  for (const float value : values) {
    CHECK(std::abs(value) <= bound);
    total += value;
    squares += static_cast<double>(value) * value;
  }
  const auto n = static_cast<double>(values.size());
  const double deviation = bound / std::sqrt(3.0);
  CHECK(std::abs(total / n) < 4 * deviation / std::sqrt(n));
  CHECK(std::abs(squares / n / (deviation * deviation) - 1) < 4 * std::sqrt(0.8 / n));
  CHECK(*std::max_element(values.begin(), values.end()) > 0.5 * bound);
}

}  // namespace

TEST_CASE("Linear and Conv2d start uniform in 1/sqrt(fan_in), as in PyTorch") {
  manual_seed(1);
  const nn::Linear linear(400, 300);
  check_uniform(linear.weight, 1 / std::sqrt(400.0));
  check_uniform(linear.bias, 1 / std::sqrt(400.0));
  const nn::Conv2d conv(16, 64, {3, 5});
  check_uniform(conv.weight, 1 / std::sqrt(16.0 * 15));
  check_uniform(conv.bias, 1 / std::sqrt(16.0 * 15));
  check_has(error_of([] { nn::init::fan_in({3}); }), "at least two dimensions");
}

TEST_CASE("a seed decides a model") {
  manual_seed(5);
  const nn::BasicNet a;
  const nn::BasicNet other;
  manual_seed(5);
  const nn::BasicNet b;
  CHECK(a.fc1.weight.to_vector<float>() == b.fc1.weight.to_vector<float>());
  CHECK(a.conv2.bias.to_vector<float>() == b.conv2.bias.to_vector<float>());
  CHECK(a.fc1.weight.to_vector<float>() != other.fc1.weight.to_vector<float>());
}

TEST_CASE("Linear by hand, with and without bias") {
  nn::Linear linear(2, 1);
  linear.load_state_dict(
      {{"weight", Tensor::from<float>({2, 3}, {1, 2})}, {"bias", Tensor::from<float>({0.5}, {1})}});
  CHECK(linear(Tensor::from<float>({1, 1, 0, 2}, {2, 2})).to_vector<float>() ==
        std::vector<float>{5.5f, 6.5f});
  const nn::Linear plain(2, 1, false);
  CHECK_FALSE(plain.bias.defined());
  CHECK(plain.state_dict().size() == 1);
  check_has(error_of([] { nn::Linear(0, 1); }), "Linear: sizes must be positive, got 0 and 1");
}

TEST_CASE("Conv2d takes stride, padding and no bias") {
  nn::Conv2d conv(3, 4, 3, {.stride = 2, .padding = {1, 0}, .bias = false});
  CHECK(conv.weight.shape() == Shape{4, 3, 3, 3});
  CHECK_FALSE(conv.bias.defined());
  CHECK(conv(Tensor::zeros({2, 3, 9, 9})).shape() == Shape{2, 4, 5, 4});
  check_has(error_of([] { nn::Conv2d(1, 0, 3); }), "Conv2d: channels and kernel must be positive");
}

TEST_CASE("MaxPool2d, ReLU, Flatten, LogSoftmax") {
  const Tensor x = Tensor::from<float>({1, -5, 2, -6, 3, 0, -7, 4}, {1, 1, 2, 4});
  CHECK(nn::MaxPool2d(2)(x).to_vector<float>() == std::vector<float>{3, 4});
  CHECK(nn::MaxPool2d({1, 2}, 1)(x).shape() == Shape{1, 1, 2, 3});
  CHECK(nn::ReLU()(x).to_vector<float>() == std::vector<float>{1, 0, 2, 0, 3, 0, 0, 4});
  CHECK(nn::Flatten()(x).shape() == Shape{1, 8});
  CHECK(nn::Flatten(2)(x).shape() == Shape{1, 1, 8});
  const std::vector<float> y = nn::LogSoftmax()(Tensor::zeros({1, 4})).to_vector<float>();
  for (const float value : y) CHECK(value == doctest::Approx(-std::log(4.0)));
}

TEST_CASE("Dropout drops and scales while training, and does nothing in evaluation") {
  manual_seed(3);
  nn::Dropout dropout(0.25);
  const Tensor x = ones({10000});
  const std::vector<float> y = dropout(x).to_vector<float>();
  const auto zeros = std::count(y.begin(), y.end(), 0.0f);
  CHECK(std::abs(static_cast<double>(zeros) - 2500) < 4 * std::sqrt(10000 * 0.25 * 0.75));
  for (const float value : y) CHECK((value == 0 || value == doctest::Approx(4.0 / 3)));
  CHECK(dropout(x).to_vector<float>() != y);
  manual_seed(3);
  CHECK(dropout(x).to_vector<float>() == y);
  dropout.eval();
  CHECK(dropout(x).to_vector<float>() == x.to_vector<float>());
  check_has(error_of([] { nn::Dropout(1.5); }), "must be in [0, 1], got 1.5");
}

TEST_CASE("the losses are the ops with their reduction") {
  const Tensor logits = Tensor::from<float>({1, 2, 3, 0, 0, 0}, {2, 3});
  const Tensor target = Tensor::from<std::int64_t>({2, 0}, {2});
  const double first = std::log(std::exp(-2.0) + std::exp(-1.0) + 1), second = std::log(3.0);
  CHECK(nn::CrossEntropyLoss()(logits, target).item<float>() ==
        doctest::Approx((first + second) / 2));
  CHECK(nn::CrossEntropyLoss{.reduction = Reduction::sum}(logits, target).item<float>() ==
        doctest::Approx(first + second));
  CHECK(nn::NLLLoss{.reduction = Reduction::none}(nn::functional::log_softmax(logits), target)
            .shape() == Shape{2});
  CHECK(nn::NLLLoss()(nn::functional::log_softmax(logits), target).item<float>() ==
        doctest::Approx((first + second) / 2));
}

TEST_CASE("BasicNet's loss falls on one batch") {
  manual_seed(0);
  nn::BasicNet net;
  net.eval();  // without dropout the loss must fall at every step
  nn::SGD optimizer(net.parameters(), {.lr = 0.05});
  const Tensor x = randn({8, 1, 28, 28});
  const Tensor target = arange(8);
  double before = 0;
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    const Tensor y = net(x);
    CHECK(y.shape() == Shape{8, 10});
    const Tensor loss = nn::NLLLoss()(y, target);
    loss.backward();
    optimizer.step();
    if (step == 0) {
      CHECK(loss.item<double>() == doctest::Approx(std::log(10.0)).epsilon(0.1));
    } else {
      CHECK(loss.item<double>() < before);
    }
    before = loss.item<double>();
  }
}
