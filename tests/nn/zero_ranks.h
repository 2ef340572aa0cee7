// SPDX-License-Identifier: Apache-2.0
// What the tests of ZeroRedundancyOptimizer share: optimizers by name, plain and shared out over a
// group, and small models with their batches.
#pragma once

#include <peal/autograd/grad_slot.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/nn.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp_ranks.h"

namespace peal::testing {

template <class O>
using Zero = nn::ZeroRedundancyOptimizer<O>;

// Over a group, or of one rank.
struct Made {
  std::unique_ptr<nn::Optimizer> optimizer;
  const nn::OptimizerShards* shards = nullptr;
};
using MakeOptimizer = std::function<Made(const Group* group, const NamedTensors&)>;

template <class O, class... Args>
Made optimizer_of(const Group* group, const Args&... args) {
  if (group == nullptr) return {std::make_unique<O>(args...)};
  auto made = std::make_unique<Zero<O>>(*group, args...);
  const nn::OptimizerShards* const shards = &made->shards();
  return {std::move(made), shards};
}

template <class O, class Options>
MakeOptimizer of(const Options& options) {
  return [options](const Group* group, const NamedTensors& named) {
    return optimizer_of<O>(group, nn::Parameters(named), options);
  };
}

// Matrices with decay, and others without, at another rate.
inline Made adamw_of_groups(const Group* group, const NamedTensors& named) {
  NamedTensors matrices, others;
  for (const auto& each : named) (each.second.dim() > 1 ? matrices : others).push_back(each);
  return optimizer_of<nn::AdamW>(group,
                                 std::vector<nn::ParameterGroup<nn::AdamWOptions>>{
                                     {matrices, {.lr = 0.01, .weight_decay = 0.1}},
                                     {others, {.lr = 0.02, .beta1 = 0.8, .weight_decay = 0}}});
}

inline std::vector<std::pair<std::string, MakeOptimizer>> optimizers() {
  using namespace nn;
  return {{"SGD", of<SGD>(SGDOptions{.lr = 0.05, .momentum = 0.9})},
          {"Adam", of<Adam>(AdamOptions{.lr = 0.01})},
          {"AdamW", of<AdamW>(AdamWOptions{.lr = 0.01, .amsgrad = true})},
          {"AdamW, groups", adamw_of_groups},
          {"NAdam", of<NAdam>(NAdamOptions{.lr = 0.01})},
          {"LAMB", of<LAMB>(LAMBOptions{.lr = 0.01})},
          {"Adafactor", of<Adafactor>(AdafactorOptions{.lr = 0.01})}};
}

// As BasicNet, and small: x [N, 1, 6, 6] -> log-probabilities [N, 3].
struct SmallNet : nn::Module {
  nn::Conv2d conv1 = add("conv1", nn::Conv2d(1, 3, 3));
  nn::Conv2d conv2 = add("conv2", nn::Conv2d(3, 4, 3));
  nn::Linear fc1 = add("fc1", nn::Linear(4, 8));
  nn::Linear fc2 = add("fc2", nn::Linear(8, 3));
  Tensor forward(const Tensor& x) override {
    const Tensor y = max_pool2d(relu(conv2(relu(conv1(x)))), 2);
    return log_softmax(fc2(relu(fc1(flatten(y, 1)))));
  }
};

struct SmallGpt : nn::GPT {
  SmallGpt() : nn::GPT({.vocabulary = 11, .width = 8, .heads = 2, .layers = 2, .positions = 6}) {}
};

// The loss of rows [begin, end) of the batch of that step.
inline Tensor small_loss(nn::Module& model, const SmallNet&, int step, int begin, int end) {
  std::vector<double> x;
  std::vector<std::int64_t> y;
  for (int row = begin; row < end; ++row) {
    for (int i = 0; i < 36; ++i) x.push_back((row * 31 + step * 17 + i * 7) % 23 / 11.0 - 1);
    y.push_back((row * 5 + step) % 3);
  }
  const Tensor in = Tensor::from(x, {end - begin, 1, 6, 6});
  return nll_loss(model(cast(in, model.parameters()[0].dtype())),
                  Tensor::from(y, {static_cast<std::int64_t>(y.size())}));
}

inline Tensor small_loss(nn::Module& model, const SmallGpt&, int step, int begin, int end) {
  std::vector<std::int64_t> x, y;
  for (int row = begin; row < end; ++row) {
    for (int i = 0; i < 5; ++i) {
      x.push_back((row * 3 + step * 5 + i * 7) % 11);
      y.push_back((row * 3 + step * 5 + i * 7 + 4) % 11);
    }
  }
  const Tensor logits = model(Tensor::from(x, {end - begin, 5}));
  return cross_entropy(logits.reshape({(end - begin) * 5, 11}),
                       Tensor::from(y, {static_cast<std::int64_t>(y.size())}));
}

inline std::vector<std::vector<double>> values_of(const NamedTensors& list) {
  std::vector<std::vector<double>> values;
  for (const auto& [name, tensor] : list) {
    values.push_back(cast(tensor.detach(), DType::f64).to_vector<double>());
  }
  return values;
}

// Keys and values, bit for bit (no value of these tests needs more than 53 bits).
inline void check_same(const NamedTensors& a, const NamedTensors& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].first == b[i].first);
    CHECK(a[i].second.dtype() == b[i].second.dtype());
    CHECK(a[i].second.shape() == b[i].second.shape());
  }
  CHECK(values_of(a) == values_of(b));
}

// The same whole numbers, over 8, on all ranks: what DDP would leave.
inline void give_gradients(const NamedTensors& list, int step) {
  for (const auto& [name, p] : list) {
    p.zero_grad();
    std::vector<double> g;
    for (std::int64_t i = 0; i < p.numel(); ++i) {
      g.push_back(static_cast<double>((5 * step + 3 * i + p.numel()) % 7 - 2) / 8);
    }
    p.grad_slot().accumulate(
        cast(Tensor::from(g, {p.numel()}), p.dtype()).clone().detach(p.shape()));
  }
}

// Leaves of whole numbers.
inline NamedTensors leaves(const std::vector<Shape>& shapes, DType dtype = DType::f32) {
  NamedTensors list;
  for (const Shape& shape : shapes) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      values.push_back(static_cast<double>((i * 5 + shape.numel()) % 7 - 3));
    }
    const Tensor flat = cast(Tensor::from(values, {shape.numel()}), dtype).clone();
    const std::string name(1, static_cast<char>('a' + list.size()));
    list.emplace_back(name, flat.detach(shape).clone().set_requires_grad());
  }
  return list;
}

}  // namespace peal::testing
