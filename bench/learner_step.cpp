// SPDX-License-Identifier: Apache-2.0
// learner_step: what a training step costs under the Accelerator, the Learner and the Trainer,
// beside a loop by hand (with DistributedDataParallel, of several ranks). A perceptron of
// 784-512-512-10 on random data; epochs of the four take turns, and the medians of their ratios,
// turn by turn, are printed, of wall and of processor time; rank 0's. A fit's beginning and end, in
// which the model is wrapped and a plain one again, is no step, and is printed beside them. The
// Trainer neither clips nor saves, as the loop does not, and logs as it does of itself.
//
//   learner_step [--turns 15] [--batches 50] [--batch 128]
//   peal-mpirun -n 2 learner_step
#include <peal/data/tensor_dataset.h>
#include <peal/launch/command_line.h>
#include <peal/launch/training/learner/learner.h>
#include <peal/launch/training/trainer/trainer.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/nn.h>

#include <peal/bench/clock.h>

#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace peal;
using bench::Seconds;

struct Settings {
  int turns = 15;
  std::int64_t batches = 50, batch = 128;
};

// A model, and the data for it, the same for all.
struct Work {
  Work(launch::Job& job, const Settings& settings)
      : set([&] {
          const std::int64_t n = settings.batches * settings.batch * job.world();
          manual_seed(1);
          const Tensor x = randn({n, 784});
          std::vector<std::int64_t> classes;
          for (std::int64_t i = 0; i < n; ++i) classes.push_back(i * 7 % 10);
          return std::make_shared<data::TensorDataset>(x, Tensor::from(classes, {n}));
        }()),
        loader(set,
               {.batch_size = settings.batch, .shuffle = true, .shard = job.place(), .seed = 1}) {
    manual_seed(2);
    net = nn::mlp({784, 512, 512, 10});
  }
  nn::Module net;
  data::DatasetRef set;
  data::DataLoader loader;
};

// How long the steps took, and what came before and after them.
struct Times {
  Seconds steps, around{};
};
using Epoch = std::function<Times()>;
const nn::AdamWOptions adam{.lr = 1e-3};

Epoch by_hand(launch::Job& job, const Settings& settings) {
  const auto work = std::make_shared<Work>(job, settings);
  if (job.world() > 1) work->net = nn::DistributedDataParallel(work->net, job.group());
  const auto optimizer = std::make_shared<nn::AdamW>(work->net.named_parameters(), adam);
  return [work, optimizer]() -> Times {
    const bench::Clock clock;
    for (const data::Batch& batch : work->loader) {
      cross_entropy(work->net(batch.x), batch.y).backward();
      optimizer->step();
      optimizer->zero_grad();
    }
    return {clock.since_start()};
  };
}

Epoch by_accelerator(launch::Job& job, const Settings& settings) {
  struct Prepared {
    Prepared(launch::Job& job, const Settings& settings)
        : work(job, settings), adamw(work.net.named_parameters(), adam), accelerator(job) {}
    Work work;
    nn::AdamW adamw;
    launch::Accelerator accelerator;
  };
  const auto all = std::make_shared<Prepared>(job, settings);
  auto prepared = all->accelerator.prepare(all->work.net, all->adamw, all->work.loader);
  return [all, prepared]() mutable -> Times {
    const bench::Clock clock;
    auto& [model, optimizer, loader] = prepared;
    for (const data::Batch& batch : loader) {
      const auto turn = all->accelerator.accumulate(model);
      all->accelerator.backward(cross_entropy(model(batch.x), batch.y));
      optimizer.step();
      optimizer.zero_grad();
    }
    return {clock.since_start()};
  };
}

Epoch by_learner(launch::Job& job, const Settings& settings) {
  struct Steps : launch::Callback {
    int order() const override { return 100; }
    void before_train(launch::Loop&) override { clock = bench::Clock(); }
    void after_train(launch::Loop&) override { spent = clock.since_start(); }
    bench::Clock clock;
    Seconds spent;
  };
  const auto steps = std::make_shared<Steps>();
  const auto work = std::make_shared<Work>(job, settings);
  const auto learner = std::make_shared<launch::Learner>(
      job, launch::Loaders{&work->loader}, work->net,
      launch::LearnerOptions{.loss = nn::CrossEntropyLoss{},
                             .optimizer = launch::optimizer_of<nn::AdamW>(adam),
                             .callbacks = {steps}});
  return [work, learner, steps]() -> Times {
    const bench::Clock clock;
    learner->fit(1, adam.lr);
    const Seconds all = clock.since_start(), own = steps->spent;
    return {own, {all.wall - own.wall, all.processor - own.processor}};
  };
}

// No callback looks on: of a callback's wishes ranks would have to agree at each step. Its steps
// are those between the first forward and the last, and one more as long as they are.
Epoch by_trainer(launch::Job& job, const Settings& settings) {
  struct Forwards {
    bench::Clock clock;
    Seconds until_last;
    std::int64_t count = 0;
  };
  const auto forwards = std::make_shared<Forwards>();
  const auto work = std::make_shared<Work>(job, settings);
  const launch::TrainingArguments arguments{.per_device_train_batch_size = settings.batch,
                                            .learning_rate = adam.lr,
                                            .max_grad_norm = 0,
                                            .num_train_epochs = 1,
                                            .lr_scheduler_type = "constant",
                                            .save_strategy = "no",
                                            .disable_tqdm = true};
  const auto trainer = std::make_shared<launch::Trainer>(
      job, work->net, arguments,
      launch::TrainerOptions{.train_dataset = work->set,
                             .loss = nn::CrossEntropyLoss{},
                             .forward =
                                 [forwards](nn::Module& net, const data::Batch& batch) {
                                   if (forwards->count++ == 0) forwards->clock = bench::Clock();
                                   forwards->until_last = forwards->clock.since_start();
                                   return net(batch.x);
                                 },
                             .optimizer = launch::optimizer_of<nn::AdamW>(adam)});
  return [work, trainer, forwards]() -> Times {
    forwards->count = 0;
    const bench::Clock clock;
    trainer->train();
    const Seconds all = clock.since_start(), some = forwards->until_last;
    const auto n = static_cast<double>(forwards->count);
    const double whole = n / (n - 1);
    const Seconds own{some.wall * whole, some.processor * whole};
    return {own, {all.wall - own.wall, all.processor - own.processor}};
  };
}

double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void measure(launch::Job& job, const Settings& settings) {
  omp_set_num_threads(1);
  const std::array<std::pair<const char*, Epoch>, 4> arms{
      {{"loop", by_hand(job, settings)},
       {"accelerator", by_accelerator(job, settings)},
       {"learner", by_learner(job, settings)},
       {"trainer", by_trainer(job, settings)}}};
  const auto timed = [&](const Epoch& epoch) {
    job.group().barrier().wait();
    return epoch();
  };
  for (const auto& [name, epoch] : arms) epoch();
  std::array<std::vector<double>, 4> wall, processor;
  std::vector<double> ms, around_ms;
  for (int turn = 0; turn < settings.turns; ++turn) {
    std::array<Times, 4> spent;
    for (std::size_t k = 0; k < arms.size(); ++k) {
      const std::size_t a = (k + static_cast<std::size_t>(turn)) % arms.size();
      spent[a] = timed(arms[a].second);
    }
    around_ms.push_back(spent[2].around.processor * 1e3);
    ms.push_back(spent[0].steps.wall / static_cast<double>(settings.batches) * 1e3);
    for (std::size_t a = 0; a < arms.size(); ++a) {
      wall[a].push_back(spent[a].steps.wall / spent[0].steps.wall);
      processor[a].push_back(spent[a].steps.processor / spent[0].steps.processor);
    }
  }
  if (!job.is_main()) return;
  fmt::print("mlp, batch {}, {} rank(s): a step of a loop by hand {:.3f} ms, median of {}\n",
             settings.batch, job.world(), median(ms), settings.turns);
  for (std::size_t a = 1; a < arms.size(); ++a) {
    fmt::print("{:<12} wall {:.4f}, processor {:.4f} times the loop's\n", arms[a].first,
               median(wall[a]), median(processor[a]));
  }
  fmt::print("a fit's beginning and end: {:.2f} ms of processor time\n", median(around_ms));
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  launch::CommandLine line("A step under Accelerator, Learner and Trainer, beside a loop by hand");
  line.option("--turns", &settings.turns, "of which the medians count").positive();
  line.option("--batches", &settings.batches, "of an epoch, of each rank").positive();
  line.option("--batch", &settings.batch, "samples").positive();
  if (const auto status = line.parse(argc, argv)) return *status;
  return launch::run_main([&](launch::Job& job) { measure(job, settings); });
}
