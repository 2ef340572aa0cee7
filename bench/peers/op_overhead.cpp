// SPDX-License-Identifier: Apache-2.0
// bench/op_overhead.cpp in LibTorch's C++ interface: reads a line, measures, prints wall and
// processor time of the three in microseconds; until its input ends. Built by ratios.py where
// LibTorch's headers are.
#include <peal/bench/clock.h>

#include <torch/torch.h>

#include <cstdio>
#include <iostream>
#include <string>

namespace {

using peal::bench::Clock;
using peal::bench::Seconds;

template <class F>
Seconds microseconds(int count, F&& f) {
  const Clock clock;
  for (int i = 0; i < count; ++i) f();
  const Seconds spent = clock.since_start();
  return {spent.wall / count * 1e6, spent.processor / count * 1e6};
}

}  // namespace

int main() {
  constexpr int length = 100;
  torch::set_num_threads(1);
  torch::manual_seed(0);
  const auto a = torch::ones({1}, torch::requires_grad());
  const auto b = torch::ones({1}, torch::requires_grad());
  const auto x = torch::randn({4, 8});
  const auto y = torch::tensor({0, 1, 2, 1}, torch::kLong);
  torch::nn::Sequential model(torch::nn::Linear(8, 16), torch::nn::ReLU(),
                              torch::nn::Linear(16, 3));
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-3));
  const auto measure = [&] {
    const Seconds add = microseconds(20000, [&] { const auto sum = a + b; });
    const Seconds chain = microseconds(100, [&] {
      auto product = a * b;
      for (int i = 1; i < length; ++i) product = product * b;
      product.backward();
    });
    const Seconds step = microseconds(500, [&] {
      optimizer.zero_grad();
      torch::nll_loss(torch::log_softmax(model->forward(x), 1), y).backward();
      optimizer.step();
    });
    std::printf("%.4f %.4f %.4f %.4f %.4f %.4f\n", add.wall, add.processor, chain.wall / length,
                chain.processor / length, step.wall, step.processor);
    std::fflush(stdout);
  };
  for (std::string line; std::getline(std::cin, line);) measure();
}
