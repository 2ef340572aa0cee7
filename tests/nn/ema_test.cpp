// SPDX-License-Identifier: Apache-2.0
// Averages of parameters: the rule, swapping, saving within a checkpoint, low precision.
#include <peal/autograd/ops/ops.h>
#include <peal/nn/nn.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <cmath>

using namespace peal;
using namespace peal::testing;

namespace {

// One weight of the given type, for sums that can be done by hand.
struct One : nn::Module {
  explicit One(DType dtype = DType::f32)
      : weight(add_parameter("weight", full({1}, 8, dtype))),
        statistic(add_buffer("statistic", full({1}, 8, dtype))) {}
  Tensor forward(const Tensor& x) override { return x * weight; }
  void set(double value) {
    const NoGrad guard;
    fill_(weight, value);
    fill_(statistic, value);
  }
  Tensor weight, statistic;
};

double value(const Tensor& x) { return x.item<double>(); }

}  // namespace

TEST_CASE("the average follows the rule, and the model gets it and its own values back") {
  One model;
  nn::ExponentialMovingAverage ema(model, {.decay = 0.5});
  model.set(4);
  ema.update();
  model.set(2);
  ema.update();  // (8 / 2 + 4 / 2) / 2 + 2 / 2
  CHECK(value(ema.state_dict()[1].second) == 4);
  const void* place = model.weight.raw();
  ema.swap();
  CHECK(value(model.weight) == 4);
  CHECK(value(model.statistic) == 2);
  CHECK(model.weight.raw() == place);
  check_has(error_of([&] { ema.update(); }), "swap() back first");
  ema.swap();
  CHECK(value(model.weight) == 2);
  ema.swap();
  ema.copy_to();  // for good: nothing is put by any more
  CHECK_FALSE(ema.swapped());
  CHECK(value(model.weight) == 4);
  CHECK(ema.updates() == 2);
}

TEST_CASE("warm-up decays less at first, and buffers are averaged where that is asked for") {
  One model;
  nn::ExponentialMovingAverage ema(model, {.decay = 0.5, .warm_up = true, .buffers = true});
  model.set(0);
  ema.update();
  CHECK(value(ema.state_dict()[1].second) == doctest::Approx(8 * 2.0 / 11));
  CHECK(value(ema.state_dict()[2].second) == doctest::Approx(8 * 2.0 / 11));
  for (int i = 0; i < 8; ++i) ema.update();
  const double before = value(ema.state_dict()[1].second);
  ema.update();
  CHECK(value(ema.state_dict()[1].second) == doctest::Approx(before / 2));
}

TEST_CASE("the first update may copy, and all may count alike, as PyTorch's AveragedModel has it") {
  One model, other;
  nn::ExponentialMovingAverage ema(model, {.decay = 0.75, .from_first = true});
  nn::ExponentialMovingAverage mean(other, {.equal = true});
  const auto update = [&](double weight) {
    model.set(weight);
    other.set(weight);
    ema.update();
    mean.update();
  };
  const auto averages = [&] {
    return std::pair(value(ema.state_dict()[1].second), value(mean.state_dict()[1].second));
  };
  update(4);
  CHECK(averages() == std::pair(4., 4.));
  update(2);
  CHECK(averages() == std::pair(3.5, 3.));
  update(0);
  CHECK(averages() == std::pair(2.625, 2.));
  // A count that was loaded goes on.
  One third;
  nn::ExponentialMovingAverage resumed(third, {.equal = true});
  resumed.load_state_dict(mean.state_dict());
  third.set(6);
  resumed.update();
  CHECK(value(resumed.state_dict()[1].second) == 3);
  check_has(
      error_of([&] { nn::ExponentialMovingAverage(model, {.warm_up = true, .equal = true}); }),
      "a mean of all updates has no warm_up");
}

TEST_CASE("averages of bf16 move by less than bf16 can show") {
  One model(DType::bf16);
  nn::ExponentialMovingAverage ema(model, {.decay = 0.999});
  model.set(9);
  for (int i = 0; i < 1000; ++i) ema.update();
  CHECK(value(ema.state_dict()[1].second) == doctest::Approx(9 - std::pow(0.999, 1000)));
  ema.swap();
  CHECK(value(model.weight) == doctest::Approx(8.6).epsilon(0.01));
}

TEST_CASE("averages are saved beside the model in a checkpoint") {
  const Folder folder;
  One model;
  nn::SGD optimizer(model.parameters());
  nn::ExponentialMovingAverage ema(model, {.decay = 0.5});
  model.set(4);
  ema.update();
  nn::save(folder.path / "c", {{"model", model}, {"optimizer", optimizer}, {"ema", ema}});
  One other;
  nn::SGD other_optimizer(other.parameters());
  nn::ExponentialMovingAverage resumed(other, {.decay = 0.5});
  nn::load(folder.path / "c", {{"model", other}, {"optimizer", other_optimizer}, {"ema", resumed}});
  CHECK(resumed.updates() == 1);
  CHECK(value(other.weight) == 4);
  resumed.swap();
  CHECK(value(other.weight) == 6);
  resumed.swap();
  nn::load_model(folder.path / "c", model);  // a model's loader passes over them
  check_has(error_of([&] { resumed.load_state_dict({}); }), "missing: .updates");
  NamedTensors more = ema.state_dict();
  more.emplace_back("stranger", ones({2}));
  check_has(error_of([&] { resumed.load_state_dict(more); }), "unexpected: stranger f32 [2]");
}

TEST_CASE("a parameter may have any name that a module allows") {
  struct Named : nn::Module {
    Tensor updates = add_parameter("updates", full({}, 8.));
    Tensor forward(const Tensor& x) override { return x * updates; }
  };
  Named model, other;
  nn::ExponentialMovingAverage ema(model, {.decay = 0.5});
  for (int i = 0; i < 3; ++i) ema.update();
  const Folder folder;
  nn::save(folder.path / "c", {{"model", model}, {"ema", ema}});
  nn::ExponentialMovingAverage resumed(other, {.decay = 0.5});
  nn::load(folder.path / "c", {{"model", other}, {"ema", resumed}});
  CHECK(resumed.updates() == 3);
  resumed.swap();
  CHECK(value(other.updates) == 8);
}

TEST_CASE("averages that were saved with a count by another name are taken") {
  One model;
  nn::ExponentialMovingAverage ema(model);
  ema.load_state_dict({{"updates", Tensor::scalar(std::int64_t{7})}, {"weight", full({1}, 3.)}});
  CHECK(ema.updates() == 7);
  CHECK(value(ema.state_dict()[1].second) == 3);
}

TEST_CASE("averages are not loaded while the model holds them, nor with a count below 0") {
  One model;
  nn::ExponentialMovingAverage ema(model, {.decay = 0.5});
  model.set(4);
  ema.update();
  NamedTensors state = ema.state_dict();
  for (auto& [name, tensor] : state) tensor = tensor.clone();
  model.set(2);
  ema.update();
  ema.swap();
  const double held = value(model.weight);
  check_has(error_of([&] { ema.load_state_dict(state); }), "swap() back first");
  CHECK(ema.updates() == 2);
  CHECK(value(ema.state_dict()[1].second) == held);
  ema.swap();
  ema.load_state_dict(state);
  CHECK(ema.updates() == 1);
  CHECK(value(ema.state_dict()[1].second) == 6);
  state[0].second = Tensor::scalar(std::int64_t{-3}, Device{});
  check_has(error_of([&] { ema.load_state_dict(state); }), "-3 updates");
  CHECK(ema.updates() == 1);
}
