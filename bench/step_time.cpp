// SPDX-License-Identifier: Apache-2.0
// step_time: the time of one training step (zero_grad, forward, backward, AdamW) of a small model
// on random data, built straight from ops. Prints the median over --reps groups of --steps steps,
// so that a group outlasts the clock's noise; --json writes {"model", "batch", "threads",
// "step_ms"};
// --profile prints the time by op as well, measured in a run of its own. With --on-demand it times
// one group for each line on its standard input and prints the milliseconds of a step, so that
// bench/peers/step_time.py can alternate it with another program.
#include <peal/autograd/core/trace.h>
#include <peal/autograd/kernels/optimizer.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>

#include <fmt/core.h>
#include <omp.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace {

using peal::Tensor;

// Parameters with their optimizer state, in order of creation.
class Parameters {
 public:
  // PyTorch's initialisation of layers: uniform in +-1/sqrt(fan in).
  Tensor add(const peal::Shape& shape, std::int64_t fan_in) {
    const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
    Tensor p = peal::uniform(shape, -bound, bound);
    p.set_requires_grad();
    all_.push_back({p, Tensor::zeros(shape), Tensor::zeros(shape)});
    return p;
  }
  void zero_grad() const {
    for (const auto& entry : all_) entry.value.zero_grad();
  }
  void step() {
    ++options_.step;
    for (const auto& entry : all_) {
      peal::adam_step(entry.value, entry.value.grad(), entry.mean, entry.square, options_);
    }
  }

 private:
  struct Entry {
    Tensor value, mean, square;
  };
  std::vector<Entry> all_;
  peal::AdamStep options_{.lr = 1e-3, .weight_decay = 1e-2, .step = 0, .decoupled = true};
};

using Loss = std::function<Tensor()>;

Tensor classes(std::int64_t batch) {
  std::vector<std::int64_t> target(static_cast<std::size_t>(batch));
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = static_cast<std::int64_t>(i * 7 % 10);
  return Tensor::from(target, {batch});
}

// The two convolutions and two fully connected layers of PyTorch's MNIST example.
Loss basicnet(Parameters& parameters, std::int64_t batch) {
  const Tensor x = peal::randn({batch, 1, 28, 28}), target = classes(batch);
  const Tensor w1 = parameters.add({32, 1, 3, 3}, 9), b1 = parameters.add({32}, 9);
  const Tensor w2 = parameters.add({64, 32, 3, 3}, 288), b2 = parameters.add({64}, 288);
  const Tensor w3 = parameters.add({128, 9216}, 9216), b3 = parameters.add({128}, 9216);
  const Tensor w4 = parameters.add({10, 128}, 128), b4 = parameters.add({10}, 128);
  return [=] {
    Tensor h = peal::relu(peal::conv2d(x, w1, b1));
    h = peal::relu(peal::conv2d(h, w2, b2));
    h = peal::dropout(peal::max_pool2d(h, {2, 2}), 0.25);
    h = peal::dropout(peal::relu(peal::linear(peal::flatten(h, 1), w3, b3)), 0.5);
    return peal::nll_loss(peal::log_softmax(peal::linear(h, w4, b4)), target);
  };
}

// 784-512-512-10 with relu.
Loss mlp(Parameters& parameters, std::int64_t batch) {
  const Tensor x = peal::randn({batch, 784}), target = classes(batch);
  const Tensor w1 = parameters.add({512, 784}, 784), b1 = parameters.add({512}, 784);
  const Tensor w2 = parameters.add({512, 512}, 512), b2 = parameters.add({512}, 512);
  const Tensor w3 = parameters.add({10, 512}, 512), b3 = parameters.add({10}, 512);
  return [=] {
    Tensor h = peal::relu(peal::linear(x, w1, b1));
    h = peal::relu(peal::linear(h, w2, b2));
    return peal::cross_entropy(peal::linear(h, w3, b3), target);
  };
}

}  // namespace

int main(int argc, char** argv) try {
  std::string model = "basicnet", json;
  std::int64_t batch = 64;
  int threads = 1, reps = 15, steps = 10;
  bool profile = false, on_demand = false;
  CLI::App app("Time of one training step");
  app.add_option("--model", model)
      ->check(CLI::IsMember({"basicnet", "mlp"}))
      ->capture_default_str();
  app.add_option("--batch", batch)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--threads", threads)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--reps", reps, "groups, of which the median counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--steps", steps, "steps in a group")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--json", json, "file to write");
  app.add_flag("--profile", profile, "print the time by op");
  app.add_flag("--on-demand", on_demand, "time a group for each line of standard input");
  CLI11_PARSE(app, argc, argv);

  omp_set_num_threads(threads);
  peal::manual_seed(0);
  Parameters parameters;
  const Loss loss = model == "basicnet" ? basicnet(parameters, batch) : mlp(parameters, batch);
  const auto step = [&] {
    parameters.zero_grad();
    loss().backward();
    parameters.step();
  };
  for (int i = 0; i < 3; ++i) step();

  const auto group = [&] {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) step();
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    return spent.count() / steps;
  };
  if (on_demand) {
    for (std::string line; std::getline(std::cin, line);) {
      fmt::print("{:.4f}\n", group());
      std::fflush(stdout);
    }
    return 0;
  }
  std::vector<double> ms;
  for (int rep = 0; rep < reps; ++rep) ms.push_back(group());
  std::sort(ms.begin(), ms.end());
  const double median = ms[ms.size() / 2];
  fmt::print(
      "{} batch {} threads {}: {:.3f} ms a step (median of {}; least {:.3f}, most {:.3f}), {:.0f} "
      "items/s\n",
      model, batch, threads, median, reps, ms.front(), ms.back(),
      static_cast<double>(batch) / median * 1e3);
  if (!json.empty()) {
    std::ofstream file(json);
    file << nlohmann::json{{"model", model},
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
    fmt::print("{}", peal::context().trace->table(count));
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "step_time: %s\n", error.what());
  return 1;
}
