// SPDX-License-Identifier: Apache-2.0
// Whole training steps in captured graphs: forward, backward, clipping, the optimizer's step and
// averages of the parameters, bit for bit as in calls, while rates change. On a GPU and on the
// host.
#include <peal/autograd/core/graph.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/amp/grad_scaler.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/nn.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/ema.h>

#include <peal/tests/autograd/arrays.h>
#include <peal/tests/errors.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

using namespace peal;
using testing::error_of;

namespace {

constexpr Device gpu{DeviceType::cuda, 0};
constexpr int steps = 22;

using Make = std::function<std::unique_ptr<nn::Optimizer>(const std::vector<Tensor>&)>;

struct Case {
  const char* name;
  DType dtype;
  Make make;
};

template <class O, class Options>
Make rule(const Options& options) {
  return [options](const std::vector<Tensor>& p) { return std::make_unique<O>(p, options); };
}

std::vector<Case> cases() {
  const auto sgd = [](const nn::SGDOptions& options) {
    return
        [options](const std::vector<Tensor>& p) { return std::make_unique<nn::SGD>(p, options); };
  };
  const auto adam = [](const nn::AdamOptions& options) {
    return
        [options](const std::vector<Tensor>& p) { return std::make_unique<nn::Adam>(p, options); };
  };
  const auto adamw = [](const std::vector<Tensor>& p) {  // two groups
    const std::vector<Tensor> first(p.begin(), p.begin() + 2), others(p.begin() + 2, p.end());
    return std::make_unique<nn::AdamW>(std::vector<nn::ParameterGroup<nn::AdamWOptions>>{
        {first, {.lr = 1e-2, .weight_decay = 0.1}}, {others, {.lr = 1e-3}}});
  };
  return {{"SGD", DType::f32, sgd({.lr = 0.1, .weight_decay = 1e-3})},
          {"SGD with momentum", DType::f32, sgd({.lr = 0.1, .momentum = 0.9, .dampening = 0.1})},
          {"SGD, Nesterov", DType::f64, sgd({.lr = 0.1, .momentum = 0.9, .nesterov = true})},
          {"Adam", DType::f32, adam({.lr = 1e-2, .weight_decay = 1e-3})},
          {"AdamW", DType::f32, adamw},
          {"AdamW of bf16", DType::bf16, adamw},
          {"amsgrad", DType::f32, adam({.lr = 1e-2, .amsgrad = true})},
          {"RMSprop, three states", DType::f32,
           rule<nn::RMSprop>(nn::RMSpropOptions{.lr = 1e-2, .momentum = 0.9, .centered = true})},
          {"Adagrad, up", DType::f32,
           rule<nn::Adagrad>(nn::AdagradOptions{.lr_decay = 0.1, .maximize = true})},
          {"Adadelta", DType::f32, rule<nn::Adadelta>(nn::AdadeltaOptions{.lr = 0.5})},
          {"Adamax", DType::f32, rule<nn::Adamax>(nn::AdamaxOptions{})},
          {"NAdam", DType::f64, rule<nn::NAdam>(nn::NAdamOptions{.lr = 1e-2})},
          {"RAdam, rectified from step 6 on", DType::f32,
           rule<nn::RAdam>(nn::RAdamOptions{.lr = 1e-2})},
          {"Lion of bf16", DType::bf16, rule<nn::Lion>(nn::LionOptions{.lr = 1e-2})}};
}

std::vector<double> values(const Tensor& tensor) {
  return cast(tensor.to(Device{}), DType::f64).to_vector<double>();
}

void append(std::vector<double>& all, const std::vector<double>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Everything that training leaves.
std::vector<double> train(const Case& one, bool captured) {
  manual_seed(7);
  nn::Module net = nn::mlp({6, 8, 3});
  net.to(gpu);
  std::vector<Tensor> parameters;
  for (const Tensor& parameter : net.parameters()) {
    const Tensor own = cast(parameter.detach(), one.dtype).clone();
    own.set_requires_grad();
    parameters.push_back(own);
  }
  const auto optimizer = one.make(parameters);
  nn::LRScheduler scheduler(*optimizer, nn::warm_up(5, nn::cosine_annealing_lr(steps)));
  const Tensor x = Tensor::empty({4, 6}, DType::f32, gpu);
  Graph graph(captured ? gpu : Device{});
  Tensor loss, norm;
  std::vector<double> all;
  for (int step = 0; step < steps; ++step) {
    manual_seed(static_cast<std::uint64_t>(100 + step));
    x.copy_(randn({4, 6}, DType::f32, Device{}).to(gpu));
    graph.run([&] {
      optimizer->zero_grad();
      Tensor h = cast(x, one.dtype);
      h = relu(matmul(h, parameters[0], false, true) + parameters[1]);
      h = matmul(h, parameters[2], false, true) + parameters[3];
      loss = mean(cast(h * h, DType::f32));
      loss.backward();
      norm = nn::clip_grad_norm_(parameters, 0.5);
      optimizer->step();
    });
    scheduler.step();
    // Others may write parameters and settings between replays, and before the capture.
    if (step == 1 || step == 12) {
      const NoGrad guard;
      parameters[1].copy_(parameters[1] * 0.5);
      optimizer->set_setting("weight_decay", 0.02);
    }
    append(all, values(loss));
    append(all, values(norm));
  }
  CHECK(graph.captured() == captured);
  for (const auto& [name, tensor] : optimizer->state_dict()) append(all, values(tensor));
  for (const Tensor& parameter : parameters) append(all, values(parameter));
  return all;
}

}  // namespace

TEST_CASE("a captured step of every optimizer trains as calls do, while rates change") {
  for (const Case& one : cases()) {
    CAPTURE(one.name);
    const auto calls = train(one, false), graph = train(one, true);
    CHECK(calls == graph);
    CHECK(calls[0] == calls[0]);  // no NaN
    CHECK(calls[0] != calls[2]);
  }
}

TEST_CASE("a step that is made of operations is refused in a graph, by name") {
  const Tensor p = full({3}, 2, DType::f32, gpu);
  p.set_requires_grad();
  nn::LAMB lamb({p});
  nn::LBFGS lbfgs({p});
  const auto loss = [&] {
    p.zero_grad();
    const Tensor loss = sum(p * p);
    loss.backward();
    return loss;
  };
  loss();
  lamb.step();  // state is there
  Graph graph(gpu, 1), other(gpu, 1);
  graph.run([&] { loss(); });
  other.run([&] { loss(); });
  CHECK(error_of([&] {
          graph.run([&] {
            loss();
            lamb.step();
          });
        }).find("LAMB: its step is made of operations and cannot lie in a captured graph") !=
        std::string::npos);
  CHECK(error_of([&] {
          other.run([&] { lbfgs.step(loss); });
        }).find("LBFGS: its step reads the loss on the host") != std::string::npos);
}

TEST_CASE("averages of parameters in a captured step") {
  const auto averages = [](bool captured) {
    manual_seed(7);
    nn::Module net = nn::mlp({3, 2});
    net.to(gpu);
    nn::SGD optimizer(net.parameters(), {.lr = 0.1});
    nn::ExponentialMovingAverage ema(net, {.decay = 0.9});
    const Tensor x = full({2, 3}, 1, DType::f32, gpu);
    Graph graph(captured ? gpu : Device{});
    for (int step = 0; step < 6; ++step) {
      graph.run([&] {
        optimizer.zero_grad();
        mean(net(x)).backward();
        optimizer.step();
        ema.update();
      });
    }
    CHECK(ema.updates() == 6);
    std::vector<double> all;
    for (const auto& [name, tensor] : ema.state_dict()) append(all, values(tensor));
    if (captured) {
      ema.swap();
      CHECK(error_of([&] { graph.run([] {}); }).find("swap() back first") != std::string::npos);
      ema.swap();
    }
    return all;
  };
  CHECK(averages(true) == averages(false));
}

TEST_CASE(
    "a captured loss has the scale of its replay, and steps that look at values are refused") {
  const Tensor p = full({3}, 2, DType::f32, gpu);
  p.set_requires_grad();
  nn::SGD optimizer({p}, {.lr = 0.5});
  nn::GradScaler scaler({.init_scale = 4, .growth_factor = 2, .growth_interval = 1});
  Graph graph(gpu);
  for (int step = 0; step < 6; ++step) {
    graph.run([&] {
      optimizer.zero_grad();
      scaler.scale(sum(p)).backward();
    });
    CHECK(p.grad().to_vector<float>()[0] == static_cast<float>(4 << step));
    CHECK(scaler.step(optimizer));
    scaler.update();
    CHECK(p.to_vector<float>()[2] == 2 - 0.5f * static_cast<float>(step + 1));
  }
  Graph whole(gpu, 1);
  const auto step = [&] {
    optimizer.zero_grad();
    scaler.scale(sum(p)).backward();
    scaler.step(optimizer);
    scaler.update();
  };
  whole.run(step);
  CHECK(error_of([&] { whole.run(step); }).find("call unscale_, step and update outside") !=
        std::string::npos);
}

TEST_CASE("what a captured step was made for must still be there") {
  const Tensor p = full({3}, 2, DType::f32, gpu), x = full({3}, 1, DType::f32, gpu);
  p.set_requires_grad();
  const auto backward = [&](nn::Optimizer& optimizer) {
    optimizer.zero_grad();
    sum(p * x).backward();
  };
  std::optional<nn::Adam> adam(std::in_place, std::vector<Tensor>{p});
  Graph early(gpu, 1);
  early.run([&] { backward(*adam); });
  CHECK(error_of([&] {
          early.run([&] {
            backward(*adam);
            adam->step();
          });
        }).find("Adam: parameter 0 of shape [3] has no state yet") != std::string::npos);
  Graph graph(gpu, 1);
  const auto step = [&] {
    backward(*adam);
    adam->step();
  };
  for (int i = 0; i < 3; ++i) graph.run(step);
  CHECK(adam->state_dict().at(6).second.item<std::int64_t>() == 3);
  adam->load_state_dict(adam->state_dict());
  CHECK(error_of([&] {
          graph.run(step);
        }).find("lies elsewhere than when the graph was captured") != std::string::npos);
  Graph next(gpu, 1);
  for (int i = 0; i < 2; ++i) next.run(step);
  adam.reset();
  CHECK(error_of([&] { next.run(step); }).find("is gone") != std::string::npos);
}
