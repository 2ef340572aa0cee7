// SPDX-License-Identifier: Apache-2.0
// A small training by the Trainer, for its tests.
#pragma once

#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/training/trainer/trainer.h>
#include <peal/nn/layers/linear.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace peal::testing {

// Sample i is (i, 1), of class i mod 3.
struct Numbered : data::Dataset {
  explicit Numbered(std::int64_t n) : count(n) {}
  std::int64_t size() const override { return count; }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    std::vector<float> x;
    std::vector<std::int64_t> y;
    for (const std::int64_t index : indices) {
      x.push_back(static_cast<float>(index));
      x.push_back(1);
      y.push_back(index % 3);
    }
    const auto n = std::ssize(indices);
    return {Tensor::from(x, {n, 2}, Device{}), Tensor::from(y, {n}, Device{})};
  }
  std::int64_t count;
};

// Which samples were learnt from, of all ranks.
struct SeenSamples {
  void add(const Tensor& x) {
    const std::lock_guard lock(mutex);
    for (const float each : x.select(1, 0).to_vector<float>())
      all.insert(static_cast<std::int64_t>(each));
  }
  std::mutex mutex;
  std::multiset<std::int64_t> all;
};

inline nn::Linear small_net() {
  manual_seed(3);
  return nn::Linear(2, 3);
}

// Drops out at training, and writes down what it saw then.
inline launch::Loop::ForwardFunction forward_with(double rate, SeenSamples* seen = nullptr) {
  return [rate, seen](nn::Module& net, const data::Batch& batch) {
    if (net.training() && seen != nullptr) seen->add(batch.x);
    return dropout(net(batch.x / 16.0), rate, net.training());
  };
}

inline std::vector<float> weights_of(const nn::Module& net) {
  std::vector<float> all;
  for (const Tensor& each : net.parameters()) {
    const auto some = each.detach().to_vector<float>();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// Which says nothing, saves nothing and logs each step.
inline launch::TrainingArguments quiet() {
  return {.per_device_train_batch_size = 4,
          .learning_rate = 0.1,
          .num_train_epochs = 1,
          .logging_steps = 1,
          .save_strategy = "no",
          .disable_tqdm = true};
}

// Calls a function at each event, by name.
struct Names : launch::TrainerCallback {
  using Heard = std::function<void(const char*, launch::Trainer&, launch::TrainerControl&)>;
  explicit Names(Heard f) : heard(std::move(f)) {}
#define HEARD(event)                                                               \
  void event(launch::Trainer& trainer, launch::TrainerControl& control) override { \
    heard(#event, trainer, control);                                               \
  }
  HEARD(on_train_begin)
  HEARD(on_train_end)
  HEARD(on_epoch_begin)
  HEARD(on_epoch_end)
  HEARD(on_step_begin)
  HEARD(on_substep_end)
  HEARD(on_pre_optimizer_step)
  HEARD(on_optimizer_step)
  HEARD(on_step_end)
  HEARD(on_log)
  HEARD(on_evaluate)
  HEARD(on_save)
#undef HEARD
  Heard heard;
};

// A number of each log that has it.
inline std::vector<double> logged(const launch::TrainerState& state, const std::string& name) {
  std::vector<double> all;
  for (const launch::TrainerLog& log : state.log_history) {
    if (const auto found = log.find(name)) all.push_back(*found);
  }
  return all;
}

inline launch::TrainingArguments saving(const std::string& folder) {
  return {.output_dir = folder,
          .per_device_train_batch_size = 2,
          .learning_rate = 0.1,
          .num_train_epochs = 1,
          .logging_steps = 2,
          .save_steps = 1,
          .disable_tqdm = true};
}

struct AtStep : launch::TrainerCallback {
  explicit AtStep(std::function<void(std::int64_t)> f) : then(std::move(f)) {}
  void on_step_end(launch::Trainer& trainer, launch::TrainerControl&) override {
    then(trainer.state().global_step);
  }
  std::function<void(std::int64_t)> then;
};

struct Run {
  std::vector<float> weights;
  std::vector<double> losses, rates;
  std::int64_t steps = 0, max_steps = 0;
};

// Rank 0's, of a training on so many samples.
inline Run run(int world, const launch::TrainingArguments& arguments, std::int64_t samples,
               SeenSamples* seen = nullptr, const std::function<void(std::int64_t)>& at_step = {}) {
  Run found;
  comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    launch::TrainerOptions options{.train_dataset = std::make_shared<Numbered>(samples),
                                   .forward = forward_with(0.3, seen)};
    for (std::int64_t i = 0; i < samples; ++i) options.lengths.push_back(i % 5);
    if (at_step) options.callbacks = {std::make_shared<AtStep>(at_step)};
    nn::Linear net = small_net();
    launch::Trainer trainer(job, net, arguments, options);
    trainer.train();
    if (!job.is_main()) return;
    found = {weights_of(net), logged(trainer.state(), "loss"),
             logged(trainer.state(), "learning_rate"), trainer.state().global_step,
             trainer.state().max_steps};
  });
  return found;
}

}  // namespace peal::testing
