// SPDX-License-Identifier: Apache-2.0
// step_time: the time of one training step (zero_grad, forward, backward, AdamW) of a model on
// random data. Prints the median over --reps groups of --steps steps, so that a group outlasts the
// clock's noise; --json writes {"model", "batch", "threads", "step_ms"}; --profile prints the time
// by op as well, measured in a run of its own, and --trace draws one. With --on-demand it times one
// group for each line on its standard input and prints the milliseconds of a step, of wall and of
// processor time, so that bench/peers/ratios.py can alternate it with another program; --memory is
// for bench/peers/memory.py.
#include <peal/autograd/profile.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/models/resnet18.h>
#include <peal/nn/nn.h>

#include <peal/bench/clock.h>

#include <fmt/core.h>
#include <omp.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using peal::Tensor;
using peal::bench::Clock;
using peal::bench::Seconds;

Tensor classes(std::int64_t count, std::int64_t n) {
  std::vector<std::int64_t> target(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i] = static_cast<std::int64_t>(i) * 7 % count;
  }
  return Tensor::from(target, {n});
}

// What is trained, and what one pass of a batch through it loses.
struct Job {
  std::vector<Tensor> parameters;
  std::function<Tensor()> loss;
};

// A model called M, with its input and a loss of what it gives.
template <class M, class LossOf>
Job job(M made, const Tensor& x, LossOf loss_of) {
  const auto model = std::make_shared<M>(std::move(made));
  return {model->parameters(), [=] { return loss_of(model->forward(x)); }};
}

struct Model {
  std::int64_t batch;  // of the measurement in shared use
  int steps;           // in a group
  std::function<Job(std::int64_t batch)> make;
};

const std::map<std::string, Model>& models() {
  static const std::map<std::string, Model> all{
      {"basicnet",
       {64, 10,
        [](std::int64_t n) {
          return job(peal::nn::BasicNet(), peal::randn({n, 1, 28, 28}),
                     [y = classes(10, n)](const Tensor& out) { return peal::nll_loss(out, y); });
        }}},
      {"mlp",
       {128, 50,
        [](std::int64_t n) {
          return job(
              peal::nn::mlp({784, 512, 512, 10}), peal::randn({n, 784}),
              [y = classes(10, n)](const Tensor& out) { return peal::cross_entropy(out, y); });
        }}},
      {"gpt",
       {8, 3,
        [](std::int64_t n) {
          constexpr std::int64_t length = 128, words = 1000;
          const Tensor tokens = peal::reshape(classes(words, n * length), {n, length});
          return job(peal::nn::GPT(), tokens, [y = classes(words, n * length)](const Tensor& out) {
            return peal::cross_entropy(peal::reshape(out, {-1, words}), y);
          });
        }}},
      {"resnet18",
       {32, 1,
        [](std::int64_t n) {
          return job(
              peal::nn::ResNet18(), peal::randn({n, 3, 32, 32}),
              [y = classes(10, n)](const Tensor& out) { return peal::cross_entropy(out, y); });
        }}},
  };
  return all;
}

}  // namespace

int main(int argc, char** argv) try {
  std::string name = "basicnet", json, trace_file;
  std::int64_t batch = 0;
  int threads = 1, reps = 15, steps = 0;
  bool profile = false, on_demand = false, memory = false;
  CLI::App app("Time of one training step");
  app.add_option("--model", name)
      ->check(CLI::IsMember({"basicnet", "mlp", "gpt", "resnet18"}))
      ->capture_default_str();
  app.add_option("--batch", batch, "default: 64, 128, 8 (of 128 tokens), 32")
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", threads)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--reps", reps, "groups, of which the median counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--steps", steps, "steps in a group; default: 10, 50, 3, 1")
      ->check(CLI::PositiveNumber);
  app.add_option("--json", json, "file to write");
  app.add_flag("--profile", profile, "print time, rates and memory by op");
  app.add_option("--trace", trace_file, "file for a picture of a group (ui.perfetto.dev)");
  app.add_flag("--memory", memory,
               "print the most bytes resident, before the model and after steps");
  app.add_flag("--on-demand", on_demand, "time a group for each line of standard input");
  CLI11_PARSE(app, argc, argv);

  const Model& model = models().at(name);
  if (batch == 0) batch = model.batch;
  if (steps == 0) steps = model.steps;
  const std::size_t at_start = peal::memory_marks().resident;
  omp_set_num_threads(threads);
  peal::manual_seed(0);
  const Job work = model.make(batch);
  peal::nn::AdamW optimizer(work.parameters, {.lr = 1e-3});
  const auto step = [&] {
    optimizer.zero_grad();
    work.loss().backward();
    optimizer.step();
  };
  if (memory) {
    for (int i = 0; i < steps; ++i) step();
    fmt::print("{} {}\n", at_start, peal::memory_marks().resident);
    return 0;
  }
  for (int i = 0; i < 3; ++i) step();

  const auto group = [&] {
    const Clock clock;
    for (int i = 0; i < steps; ++i) step();
    const Seconds spent = clock.since_start();
    return Seconds{spent.wall / steps * 1e3, spent.processor / steps * 1e3};
  };
  if (on_demand) {
    for (std::string line; std::getline(std::cin, line);) {
      const Seconds ms = group();
      fmt::print("{:.4f} {:.4f}\n", ms.wall, ms.processor);
      std::fflush(stdout);
    }
    return 0;
  }
  std::vector<double> ms;
  for (int rep = 0; rep < reps; ++rep) ms.push_back(group().wall);
  std::sort(ms.begin(), ms.end());
  const double median = ms[ms.size() / 2];
  fmt::print(
      "{} batch {} threads {}: {:.3f} ms a step (median of {}; least {:.3f}, most {:.3f}), {:.0f} "
      "items/s\n",
      name, batch, threads, median, reps, ms.front(), ms.back(),
      static_cast<double>(batch) / median * 1e3);
  if (!json.empty()) {
    std::ofstream file(json);
    file << nlohmann::json{{"model", name},
                           {"batch", batch},
                           {"threads", threads},
                           {"step_ms", median}}
         << "\n";
    PEAL_CHECK(file.flush().good(), "step_time: cannot write ", json);
  }
  if (profile) {
    peal::context().trace = std::make_shared<peal::Trace>();
    const int count = reps * steps;
    for (int i = 0; i < count; ++i) step();
    const auto trace = std::exchange(peal::context().trace, nullptr);
    fmt::print("{}", peal::profile_report(*trace, count));
  }
  if (!trace_file.empty()) {
    peal::context().trace = std::make_shared<peal::Trace>(peal::Trace::picture_events);
    for (int i = 0; i < steps; ++i) step();
    peal::save_trace(trace_file, *peal::context().trace);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "step_time: %s\n", error.what());
  return 1;
}
