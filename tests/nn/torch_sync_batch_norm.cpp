// SPDX-License-Identifier: Apache-2.0
// For torch_sync_batch_norm.py: layers that convert_sync_batchnorm() has made, on 1 to 4 ranks with
// shares of a batch that may be uneven or empty, and what they make of it in three steps of
// training and in evaluation, put together by rank. usage: torch_sync_batch_norm FOLDER
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

using namespace peal;

namespace {

constexpr std::int64_t channels = 3, steps = 3;

struct Layer {
  std::string torch;  // how PyTorch makes it
  std::function<nn::Module()> make;
  Shape sample;
};

using Shares = std::vector<std::int64_t>;
const std::vector<Shares> ways{{6},          {3, 3},       {5, 1},      {0, 4},
                               {1, 1},       {2, 2, 2},    {4, 0, 1},   {1, 3, 2},
                               {2, 2, 2, 2}, {0, 0, 3, 0}, {1, 2, 3, 4}};

std::int64_t sum_of(const Shares& shares) {
  std::int64_t sum = 0;
  for (const std::int64_t share : shares) sum += share;
  return sum;
}

Shape of_samples(std::int64_t count, const Shape& sample) {
  Shape shape{count};
  for (const std::int64_t size : sample) shape.push_back(size);
  return shape;
}

// By name, of all ranks: those of "y" and "dx" are put one after the other, "grad." are added.
using Parts = std::map<std::string, Tensors>;

void run(const Layer& layer, const Shares& shares, DType dtype, const std::string& prefix,
         NamedTensors& written) {
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    written.emplace_back(prefix + name, tensor.detach().clone());
  };
  Tensors inputs, seeds;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Shape shape = of_samples(sum_of(shares), layer.sample);
    inputs.push_back(randn(shape, dtype) * 2.0 + 1.0);
    seeds.push_back(randn(shape, dtype));
    add(concat("x.", step), inputs.back());
    add(concat("seed.", step), seeds.back());
  }
  const int world = static_cast<int>(shares.size());
  std::mutex mutex;
  std::vector<Parts> said(shares.size());
  comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
    nn::Module model = layer.make();
    model.to(dtype);
    manual_seed(7);
    for (const Tensor& p : model.parameters()) p.copy_(randn(p.shape(), dtype) + 1.0);
    model = nn::convert_sync_batchnorm(model, group);
    const int rank = group.rank();
    if (rank == 0) {
      for (const auto& [name, tensor] : model.state_dict()) add("before." + name, tensor);
    }
    std::int64_t begin = 0;
    for (int r = 0; r < rank; ++r) begin += shares[static_cast<std::size_t>(r)];
    const std::int64_t end = begin + shares[static_cast<std::size_t>(rank)];
    Parts mine;
    for (std::int64_t step = 0; step < steps; ++step) {
      const auto at = static_cast<std::size_t>(step);
      const Tensor x = inputs[at].rows(begin, end).clone().set_requires_grad();
      model.zero_grad();
      const Tensor y = model(x);
      sum(y * seeds[at].rows(begin, end)).backward();
      mine[concat("y.", step)] = {y.detach().clone()};
      mine[concat("dx.", step)] = {x.grad().clone()};
      for (const auto& [name, p] : model.named_parameters()) {
        mine[concat("grad.", step, ".", name)] = {p.grad().clone()};
      }
      if (rank == 0) {
        const std::lock_guard lock(mutex);
        for (const auto& [name, tensor] : model.named_buffers()) {
          add(concat("after.", step, ".", name), tensor);
        }
      }
    }
    model.eval();
    if (rank == 0) mine["eval"] = {model(inputs[0]).detach().clone()};
    const std::lock_guard lock(mutex);
    said[static_cast<std::size_t>(rank)] = std::move(mine);
  });
  for (const auto& [name, first] : said[0]) {
    Tensors all;
    for (Parts& parts : said) {
      if (parts.contains(name)) all.push_back(parts[name][0]);
    }
    if (!name.starts_with("grad.")) {
      add(name, cat(all));
      continue;
    }
    Tensor total = all[0];
    for (std::size_t r = 1; r < all.size(); ++r) total = total + all[r];
    add(name, total);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const auto one = [] { return nn::Module(nn::BatchNorm1d(channels)); };
    const std::vector<Layer> layers{
        {"nn.BatchNorm1d(3)", one, {channels}},
        {"nn.BatchNorm1d(3)", one, {channels, 4}},
        {"nn.BatchNorm2d(3)",
         [] { return nn::Module(nn::BatchNorm2d(channels)); },
         {channels, 2, 5}},
        {"nn.BatchNorm3d(3)",
         [] { return nn::Module(nn::BatchNorm3d(channels)); },
         {channels, 2, 3, 2}},
        {"nn.BatchNorm2d(3, momentum=None)",
         [] { return nn::Module(nn::BatchNorm2d(channels, {.momentum = std::nullopt})); },
         {channels, 2, 5}},
        {"nn.BatchNorm2d(3, eps=0.1, momentum=0.3, affine=False)",
         [] {
           return nn::Module(
               nn::BatchNorm2d(channels, {.eps = 0.1, .momentum = 0.3, .affine = false}));
         },
         {channels, 2, 5}},
        {"nn.BatchNorm1d(3, track_running_stats=False)",
         [] { return nn::Module(nn::BatchNorm1d(channels, {.track = false})); },
         {channels, 4}}};
    NamedTensors written;
    std::map<std::string, std::string> expressions;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      for (std::size_t w = 0; w < ways.size(); ++w) {
        const std::string name = concat(l, "-", w);
        std::string shares;
        for (const std::int64_t share : ways[w]) shares += concat(" ", share);
        expressions[name] = concat(layers[l].torch, ";", shares);
        for (const DType dtype : {DType::f64, DType::f32}) {
          manual_seed(l * 100 + w);
          run(layers[l], ways[w], dtype, concat(name, ".", dtype, "."), written);
        }
      }
    }
    save_safetensors(std::filesystem::path(argv[1]) / "sync.safetensors", written, expressions);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
