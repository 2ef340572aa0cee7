// SPDX-License-Identifier: Apache-2.0
// Ways to write one training, a plain loop of one rank, the Accelerator, the Learner and the
// Trainer: the same losses, step by step, with every strategy.
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/learner/callbacks.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/loss.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/clip_grad.h>

#include "points.h"
#include "trainer_program.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

using namespace peal;
using testing::Points;

namespace {

constexpr std::int64_t samples = 24, global_batch = 6;
constexpr int epochs = 2;
constexpr double max_norm = 0.5;
const std::vector<std::string> strategies{"ddp", "zero1", "zero2", "fsdp"};

// Batches of f64, whole loaders; a rank's batch is its part of the global one.
struct Wide : Points {
  Wide() : Points(samples) {}
  data::Batch get(std::span<const std::int64_t> indices) const override {
    data::Batch batch = Points::get(indices);
    batch.x = cast(batch.x, DType::f64);
    return batch;
  }
};

struct Net : nn::Module {
  nn::Linear a = add("a", nn::Linear(2, 7)), b = add("b", nn::Linear(7, 3));
  Tensor forward(const Tensor& x) override { return b(tanh(a(x))); }
};

Net made() {
  manual_seed(3);
  Net net;
  net.to(DType::f64);
  return net;
}

data::LoaderOptions in_batches(std::int64_t size) {
  return {.batch_size = size, .shuffle = true, .seed = 5};
}

const nn::AdamWOptions adam{.lr = 0.05, .weight_decay = 0.1};
const nn::CrossEntropyLoss loss_of{};

struct Run {
  std::vector<double> losses;  // by batch, of all ranks
  std::vector<double> weights;
};

std::vector<double> numbers_of(const Net& net) {
  std::vector<double> all;
  for (const Tensor& parameter : net.parameters()) {
    const auto more = parameter.detach().to_vector<double>();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

// `together`: batches for one step.
Run by_hand(std::int64_t together) {
  Net net = made();
  nn::AdamW optimizer(net.named_parameters(), adam);
  data::DataLoader loader(std::make_shared<Wide>(), in_batches(global_batch));
  Run run;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    std::int64_t number = 0;
    for (const data::Batch& batch : loader) {
      const Tensor loss = loss_of(net(batch.x), batch.y);
      run.losses.push_back(loss.item<double>());
      (loss * (1.0 / static_cast<double>(together))).backward();
      if (++number % together != 0) continue;
      nn::clip_grad_norm_(optimizer.parameters(), max_norm);
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  run.weights = numbers_of(net);
  return run;
}

Run by_accelerator(launch::Job& job, const std::string& strategy, std::int64_t together) {
  Net net = made();
  nn::AdamW adamw(net.named_parameters(), adam);
  data::DataLoader whole(std::make_shared<Wide>(), in_batches(global_batch / job.world()));
  launch::Accelerator accelerator(job,
                                  {.gradient_accumulation_steps = together, .strategy = strategy});
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, whole);
  Run run;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (const data::Batch& batch : loader) {
      const auto turn = accelerator.accumulate(model);
      const Tensor loss = loss_of(model(batch.x), batch.y);
      run.losses.push_back(accelerator.reduce(loss, comm::ReduceOp::avg).item<double>());
      accelerator.backward(loss);
      if (accelerator.sync_gradients()) {
        accelerator.clip_grad_norm_(model.parameters(), max_norm);
      }
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  const auto there = model.whole();
  run.weights = numbers_of(net);
  return run;
}

// One fit, or as many fits as epochs, which find the optimizer as the one before left it.
Run by_learner(launch::Job& job, const std::string& strategy, std::int64_t together, bool in_fits) {
  Net net = made();
  const std::int64_t batch = global_batch / job.world();
  data::DataLoader whole(std::make_shared<Wide>(), in_batches(batch));
  launch::Learner learner(
      job, {&whole}, net,
      {.loss = loss_of,
       .optimizer = launch::optimizer_of<nn::AdamW>(adam),
       .callbacks = {std::make_shared<launch::GradientAccumulation>(together * batch),
                     std::make_shared<launch::GradientClip>(max_norm)},
       .strategy = strategy});
  struct Decays : launch::Callback {  // of biases, too
    void before_fit(launch::Loop& loop) override {
      for (std::size_t g = 0; g < loop.optimizer->group_count(); ++g) {
        loop.optimizer->set_setting("weight_decay", adam.weight_decay, g);
      }
    }
  };
  learner.callbacks.push_back(std::make_shared<Decays>());
  Run run;
  for (int fit = 0; fit < (in_fits ? epochs : 1); ++fit) {
    learner.fit(in_fits ? 1 : epochs, adam.lr);
    const auto& more = learner.recorder().batch_losses;
    run.losses.insert(run.losses.end(), more.begin(), more.end());
  }
  run.weights = numbers_of(net);
  return run;
}

// Its losses are those of steps.
Run by_trainer(launch::Job& job, const std::string& strategy, std::int64_t together) {
  Net net = made();
  launch::TrainingArguments arguments = testing::quiet();
  arguments.per_device_train_batch_size = global_batch / job.world();
  arguments.gradient_accumulation_steps = together;
  arguments.num_train_epochs = epochs;
  arguments.learning_rate = adam.lr;
  arguments.lr_scheduler_type = "constant";
  arguments.max_grad_norm = max_norm;
  arguments.strategy = strategy;
  arguments.logging_steps = 1;
  arguments.seed = 5;
  launch::Trainer trainer(job, net, arguments,
                          {.train_dataset = std::make_shared<Wide>(),
                           .loss = loss_of,
                           .optimizer = launch::optimizer_of<nn::AdamW>(adam)});
  trainer.train();
  return {testing::logged(trainer.state(), "loss"), numbers_of(net)};
}

// Of steps, where those of batches are given.
Run in_steps(const Run& of, std::int64_t together) {
  Run run{{}, of.weights};
  const auto n = static_cast<std::size_t>(together);
  for (std::size_t i = 0; i + n <= of.losses.size(); i += n) {
    double sum = 0;
    for (std::size_t k = 0; k < n; ++k) sum += of.losses[i + k];
    run.losses.push_back(sum / static_cast<double>(together));
  }
  return run;
}

void check_near(const Run& got, const Run& wanted) {
  const auto near = [](const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-10).scale(1));
    }
  };
  near(got.losses, wanted.losses);
  near(got.weights, wanted.weights);
}

}  // namespace

TEST_CASE("a plain loop, Accelerator, Learner and Trainer take the same steps, by any strategy") {
  for (const std::int64_t together : {1, 2}) {
    const Run wanted = by_hand(together);
    REQUIRE(wanted.losses.size() == epochs * samples / global_batch);
    for (const int world : {1, 2, 3}) {
      comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
        launch::Job job(group);
        for (const std::string& strategy : strategies) {
          CAPTURE(strategy);
          check_near(by_accelerator(job, strategy, together), wanted);
          check_near(by_learner(job, strategy, together, false), wanted);
          check_near(by_learner(job, strategy, together, true), wanted);
          check_near(by_trainer(job, strategy, together), in_steps(wanted, together));
        }
      });
    }
  }
}
