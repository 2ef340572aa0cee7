// SPDX-License-Identifier: Apache-2.0
// op_overhead: what an operation costs when its elements cost nothing. Microseconds of an addition
// of one element that is recorded, of one multiplication in a chain of 100 forward and backward,
// and of a training step of a perceptron of 8-16-3 at batch 4 (AdamW). Medians over --reps; --json
// writes {"add_us", "chain_us", "mlp_us"}. With --on-demand it measures once for each line of its
// standard input and prints wall and processor time of each on one line: bench/peers/ratios.py
// alternates it with LibTorch.
#include <peal/launch/command_line.h>
#include <peal/nn/nn.h>

#include <peal/bench/clock.h>

#include <fmt/core.h>
#include <omp.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace {

using peal::Tensor;
using peal::bench::Clock;
using peal::bench::Seconds;

template <class F>
Seconds microseconds(int count, F&& f) {
  const Clock clock;
  for (int i = 0; i < count; ++i) f();
  const Seconds spent = clock.since_start();
  return {spent.wall / count * 1e6, spent.processor / count * 1e6};
}

class Overhead {
 public:
  Overhead() {
    a_.set_requires_grad();
    b_.set_requires_grad();
  }

  std::array<Seconds, 3> measure() {
    const Seconds chained = microseconds(100, [&] { chain(); });
    return {microseconds(20000, [&] { const Tensor sum = a_ + b_; }),
            Seconds{chained.wall / length, chained.processor / length},
            microseconds(500, [&] { step(); })};
  }

 private:
  static constexpr int length = 100;

  void chain() {
    Tensor x = a_ * b_;
    for (int i = 1; i < length; ++i) x = x * b_;
    x.backward();
  }
  void step() {
    optimizer_.zero_grad();
    peal::nll_loss(peal::log_softmax(model_(x_)), y_).backward();
    optimizer_.step();
  }

  Tensor a_ = peal::ones({1}), b_ = peal::ones({1});
  Tensor x_ = peal::randn({4, 8}), y_ = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 1}, {4});
  peal::nn::Sequential model_{peal::nn::Linear(8, 16), peal::nn::ReLU(), peal::nn::Linear(16, 3)};
  peal::nn::AdamW optimizer_{model_.parameters(), {.lr = 1e-3}};
};

}  // namespace

int main(int argc, char** argv) try {
  std::string json;
  int reps = 15;
  bool on_demand = false;
  peal::launch::CommandLine line("What an operation costs when its elements cost nothing");
  line.option("--reps", &reps, "of which the median counts").positive();
  line.option("--json", &json, "file to write");
  line.flag("--on-demand", &on_demand, "measure once for each line of standard input");
  if (const auto status = line.parse(argc, argv)) return *status;

  omp_set_num_threads(1);
  peal::manual_seed(0);
  Overhead overhead;
  overhead.measure();
  if (on_demand) {
    for (std::string line; std::getline(std::cin, line);) {
      for (const Seconds& us : overhead.measure()) {
        fmt::print("{:.4f} {:.4f} ", us.wall, us.processor);
      }
      fmt::print("\n");
      std::fflush(stdout);
    }
    return 0;
  }
  std::array<std::vector<double>, 3> all;
  for (int rep = 0; rep < reps; ++rep) {
    const auto once = overhead.measure();
    for (std::size_t i = 0; i < once.size(); ++i) all[i].push_back(once[i].wall);
  }
  std::array<double, 3> median{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::sort(all[i].begin(), all[i].end());
    median[i] = all[i][all[i].size() / 2];
  }
  fmt::print(
      "add of one element, recorded {:.3f} us; chain of 100, an op {:.3f} us; step of a "
      "tiny perceptron {:.2f} us\n",
      median[0], median[1], median[2]);
  if (!json.empty()) {
    std::ofstream file(json);
    file << nlohmann::json{{"add_us", median[0]}, {"chain_us", median[1]}, {"mlp_us", median[2]}}
         << "\n";
    PEAL_CHECK(file.flush().good(), "op_overhead: cannot write ", json);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "op_overhead: %s\n", error.what());
  return 1;
}
