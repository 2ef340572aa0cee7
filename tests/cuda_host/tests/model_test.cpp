// SPDX-License-Identifier: Apache-2.0
// Training on a simulated device against the CPU: every layer, models, optimizers, and what goes
// with them.
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/nn/amp/grad_scaler.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/models/resnet.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/ema.h>
#include <peal/nn/optim/sgd.h>
#include <peal/tests/autograd/arrays.h>
#include <peal/tests/folder.h>
#include <peal/tests/nn/torch_layers.h>

#include "on_device.h"

using namespace peal;
using test::distance;
using test::OnDevice;
using testing::Folder;

namespace {

void check_same(const NamedTensors& got, const NamedTensors& expected, double bound) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(expected[i].first);
    REQUIRE(got[i].first == expected[i].first);
    CHECK(got[i].second.dtype() == expected[i].second.dtype());
    CHECK(distance(got[i].second, expected[i].second) < bound);
  }
}

// The CPU's f against the device's: both give tensors by name.
template <class F>
void check_both(const F& f, double bound) {
  const NamedTensors expected = f();
  const OnDevice device;
  const NamedTensors got = f();
  for (const auto& [name, tensor] : got) CHECK(tensor.device().type == DeviceType::cuda);
  check_same(got, expected, bound);
}

using MakesOptimizer = std::function<std::unique_ptr<nn::Optimizer>(const std::vector<Tensor>&)>;

std::unique_ptr<nn::Optimizer> momentum(const std::vector<Tensor>& parameters) {
  return std::make_unique<nn::SGD>(
      parameters, nn::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3});
}

// Losses, gradients and state of a model that takes some steps.
NamedTensors train(nn::Module model, const Tensor& x, const Tensor& target, DType dtype,
                   const MakesOptimizer& optimizer_of = momentum, int steps = 2) {
  model.to(dtype);
  const auto optimizer = optimizer_of(model.parameters());
  NamedTensors all;
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    const Tensor y = model(is_floating(x.dtype()) ? cast(x, dtype) : x);
    const Tensor loss = cross_entropy(reshape(y, {-1, y.size(-1)}), target);
    loss.backward();
    all.emplace_back(concat("loss ", step), loss.detach());
    for (const auto& [name, parameter] : model.named_parameters()) {
      all.emplace_back(concat("gradient ", step, " ", name), parameter.grad().clone());
    }
    optimizer->step();
  }
  for (const auto& [name, tensor] : model.state_dict()) all.emplace_back(name, tensor);
  return all;
}

Tensor classes(const std::vector<std::int64_t>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

NamedTensors train_mlp(DType dtype, const MakesOptimizer& optimizer_of = momentum) {
  manual_seed(1);
  return train(nn::mlp({20, 33, 17, 5}), randn({6, 20}), classes({0, 4, 2, -100, 1, 1}), dtype,
               optimizer_of);
}

}  // namespace

TEST_CASE("every layer agrees with the CPU's") {
  const Folder folder;
  test::write_layers(folder.path / "cpu");
  {
    const OnDevice device;
    test::write_layers(folder.path / "cuda");
  }
  NamedTensors wide[2], narrow[2];
  for (int side = 0; side < 2; ++side) {
    const auto file = load_safetensors(folder.path / (side == 0 ? "cuda" : "cpu"));
    for (const auto& entry : file.tensors) {
      const bool is_narrow = entry.first.find(".f32.") != std::string::npos;
      (is_narrow ? narrow : wide)[side].push_back(entry);
    }
  }
  check_same(wide[0], wide[1], 1e-12);
  check_same(narrow[0], narrow[1], 1e-5);
}

TEST_CASE("models train as on the CPU") {
  for (const auto& [dtype, bound] : {std::pair{DType::f64, 1e-10}, {DType::f32, 1e-5}}) {
    check_both([&] { return train_mlp(dtype); }, bound);
    check_both(
        [&] {
          manual_seed(2);
          return train(nn::BasicNet(), randn({2, 1, 28, 28}), classes({3, 9}), dtype);
        },
        bound);
    check_both(
        [&] {
          manual_seed(3);
          const Tensor tokens =
              Tensor::from<std::int64_t>({1, 12, 0, 3, 3, 7, 2, 2, 5, 11}, {2, 5});
          return train(nn::GPT({13, 24, 3, 2, 9, GeluApproximation::none}), tokens,
                       classes({12, 0, 3, 3, 7, 2, 5, 5, 11, 1}), dtype);
        },
        bound);
    check_both(
        [&] {
          manual_seed(3);
          const Tensor tokens = Tensor::from<std::int64_t>({1, 12, 0, 3, 3, 7}, {2, 3});
          return train(nn::GPT({13, 8, 2, 1, 9}), tokens, classes({12, 0, 3, 3, 7, 2}), dtype);
        },
        bound);
  }
  check_both(
      [&] {
        manual_seed(4);
        return train(nn::ResNet18({.num_classes = 10, .small_images = true}), randn({2, 3, 16, 16}),
                     classes({1, 8}), DType::f64, momentum, 1);
      },
      1e-8);
}

TEST_CASE("optimizers step as on the CPU") {
  const std::vector<MakesOptimizer> all = {
      [](const auto& p) { return std::make_unique<nn::SGD>(p, nn::SGDOptions{.lr = 0.1}); },
      [](const auto& p) {
        return std::make_unique<nn::SGD>(
            p, nn::SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true});
      },
      [](const auto& p) {
        return std::make_unique<nn::SGD>(
            p, nn::SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
      },
      [](const auto& p) {
        return std::make_unique<nn::Adam>(
            p, nn::AdamOptions{.lr = 0.01, .eps = 1e-2, .weight_decay = 0.1});
      },
      [](const auto& p) {
        return std::make_unique<nn::AdamW>(p, nn::AdamWOptions{.lr = 0.01, .eps = 1e-2});
      },
  };
  for (const MakesOptimizer& optimizer_of : all) {
    check_both([&] { return train_mlp(DType::f32, optimizer_of); }, 1e-5);
    check_both([&] { return train_mlp(DType::bf16, optimizer_of); }, 0x1p-6);
  }
}

TEST_CASE("mixed precision, clipping and averages go as on the CPU") {
  const auto run = [](DType low) {
    manual_seed(5);
    nn::Sequential model{nn::Linear(20, 32), nn::GELU(), nn::Dropout(0.25), nn::Linear(32, 5)};
    nn::SGD optimizer(model.parameters(), {.lr = 0.1, .momentum = 0.9});
    nn::ExponentialMovingAverage average(model, {.decay = 0.5});
    nn::GradScaler scaler({.init_scale = 256, .growth_interval = 2});
    NamedTensors all;
    std::vector<double> noted;
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      Tensor loss;
      {
        const Autocast guard(low);
        loss = cross_entropy(model(randn({8, 20})), classes({0, 1, 2, 3, 4, 0, 1, 2}));
      }
      scaler.scale(loss).backward();
      if (step == 2) {  // one gradient is infinite: no step, and a smaller scale
        model.parameters()[0].grad().copy_(full({32, 20}, INFINITY));
      }
      scaler.unscale_(optimizer);
      if (step != 2) noted.push_back(nn::clip_grad_norm_(model.parameters(), 0.5).item<double>());
      noted.push_back(scaler.step(optimizer) ? 1 : 0);
      scaler.update();
      noted.push_back(scaler.get_scale());
      average.update();
      all.emplace_back(concat("loss ", step), loss.detach());
    }
    for (const auto& [name, tensor] : model.state_dict()) all.emplace_back(name, tensor);
    average.swap();
    for (const auto& [name, tensor] : model.state_dict()) {
      all.emplace_back("average " + name, tensor.clone());
    }
    average.swap();
    all.emplace_back("noted", Tensor::from(noted, {static_cast<std::int64_t>(noted.size())}));
    return all;
  };
  check_both([&] { return run(DType::f16); }, 0x1p-9);
  check_both([&] { return run(DType::bf16); }, 0x1p-6);
}

TEST_CASE("a loss under autocast reads logits of low precision as they are") {
  const OnDevice device;
  for (const DType low : {DType::f16, DType::bf16}) {
    for (const Reduction how : {Reduction::none, Reduction::mean, Reduction::sum}) {
      const Tensor target = classes({0, -100, 39, 7, 8});
      const Tensor logits = cast(randn({5, 40}), low), wide = cast(logits, DType::f32);
      const auto run = [&](const Tensor& x) {
        x.set_requires_grad();
        const Autocast guard(low);
        const Tensor loss = cross_entropy(x, target, how, -100, 0.1);
        loss.backward(full(loss.shape(), 3.));
        return loss;
      };
      context().trace = std::make_shared<Trace>();
      const Tensor loss = run(logits);
      const auto rows = std::exchange(context().trace, nullptr)->rows();
      for (const Trace::Row& row : rows) CHECK(row.name != "cast");
      CHECK(loss.dtype() == DType::f32);
      CHECK(logits.grad().dtype() == low);
      CHECK(distance(loss, run(wide)) == 0);
      CHECK(distance(logits.grad(), cast(wide.grad(), low)) == 0);
    }
  }
}

TEST_CASE("a checkpoint of one device goes on on the other") {
  const Folder folder;
  const auto begin = [] {
    manual_seed(6);
    return nn::mlp({8, 16, 3});
  };
  const auto step = [](nn::Sequential& model, nn::Optimizer& optimizer) {
    optimizer.zero_grad();
    cross_entropy(model(randn({4, 8})), classes({0, 1, 2, 0})).backward();
    optimizer.step();
  };
  const Device cpu, cuda{DeviceType::cuda, 0};
  const auto run = [&](Device first, Device then) {
    context().device = first;
    {
      nn::Sequential model = begin();
      nn::AdamW optimizer(model.parameters(), {.lr = 0.01, .eps = 1e-2});
      step(model, optimizer);
      nn::save(folder.path / "at",
               {{"model", model}, {"optimizer", optimizer}, {"random", RandomState()}});
    }
    context().device = then;
    nn::Sequential model = begin();
    nn::AdamW optimizer(model.parameters(), {.lr = 0.01, .eps = 1e-2});
    nn::load(folder.path / "at",
             {{"model", model}, {"optimizer", optimizer}, {"random", RandomState()}});
    step(model, optimizer);
    NamedTensors all;
    for (const auto& [name, tensor] : model.state_dict()) all.emplace_back(name, tensor.to(cpu));
    context().device = cpu;
    return all;
  };
  const NamedTensors expected = run(cpu, cpu);
  check_same(run(cuda, cuda), expected, 1e-5);
  check_same(run(cpu, cuda), expected, 1e-5);
  check_same(run(cuda, cpu), expected, 1e-5);
}
