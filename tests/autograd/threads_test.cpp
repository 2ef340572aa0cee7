// SPDX-License-Identifier: Apache-2.0
// Ranks may be threads: several train at once, each with a context, a graph and compiled
// convolutions of its own, and compute what one alone computes.
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/ops/optimizer.h>
#include <peal/autograd/tape.h>

#include "arrays.h"

#include <doctest/doctest.h>

#include <thread>

using namespace peal;

namespace {

// A few steps of a small net of every kind of layer; the parameters at the end.
std::vector<float> train() {
  manual_seed(3);
  const Tensor x = randn({6, 1, 10, 10});
  const Tensor target = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 0, 1, 2}, {6});
  const Tensors parameters{uniform({16, 1, 3, 3}, -0.3, 0.3), Tensor::zeros({16}),
                           uniform({16, 16, 3, 3}, -0.1, 0.1), uniform({3, 144}, -0.1, 0.1),
                           Tensor::zeros({3})};
  Tensors mean, square;
  for (const Tensor& p : parameters) {
    p.set_requires_grad();
    mean.push_back(Tensor::zeros(p.shape()));
    square.push_back(Tensor::zeros(p.shape()));
  }
  for (int step = 1; step <= 5; ++step) {
    Tensor h = relu(conv2d(x, parameters[0], parameters[1]));
    h = dropout(max_pool2d(relu(conv2d(h, parameters[2])), {2, 2}), 0.2);
    for (const Tensor& p : parameters) p.zero_grad();
    cross_entropy(linear(flatten(h, 1), parameters[3], parameters[4]), target).backward();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      adam_step(parameters[i], parameters[i].grad(), mean[i], square[i], {.step = step});
    }
  }
  std::vector<float> all;
  for (const Tensor& p : parameters) {
    const auto values = p.to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_CASE("threads that train at once compute the same bits as one alone") {
  const std::vector<float> alone = train();
  std::vector<std::vector<float>> results(3);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&result] { result = train(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) CHECK(result == alone);
}
