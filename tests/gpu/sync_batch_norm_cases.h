// SPDX-License-Identifier: Apache-2.0
// A synchronised batch norm on devices beside batch norm over the whole batch on the CPU, for the
// tests over each transport.
#pragma once

#include <peal/autograd/core/graph.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/sync_batch_norm.h>
#include <peal/tests/comm/on_rank.h>
#include <peal/tests/difference.h>
#include <peal/tests/nn/ddp_ranks.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <optional>
#include <vector>

namespace peal::testing {

inline constexpr std::int64_t channels = 3;
using Shares = std::vector<std::int64_t>;  // samples, by rank

// Where the second is not zero, the first has to be about as large.
inline double difference_to(const Tensor& x, const Tensor& y) {
  REQUIRE(x.shape() == y.shape());
  const auto a = cast(x.detach().to(Device{}), DType::f64).to_vector<double>();
  const auto b = cast(y.detach().to(Device{}), DType::f64).to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = larger(worst, std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i])));
  }
  return worst;
}

// The greatest difference of outputs, gradients and running statistics in some steps with samples
// of [3, 2, 5], over all ranks. `prepare` is called on each; `captured`: steps are replayed.
inline double worst_on_devices(
    const Shares& shares, DType dtype, bool captured = false,
    const std::function<void(const Group&, Device)>& prepare = [](const Group&, Device) {}) {
  const std::int64_t samples = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  double worst = 0;
  std::mutex mutex;
  ranks(static_cast<int>(shares.size()), [&](const Group& group, int rank) {
    nn::BatchNorm2d alone(channels);
    const OnDevice here(rank);
    prepare(group, here.device);
    nn::SyncBatchNorm norm(channels, group);
    for (nn::Module* const module :
         {static_cast<nn::Module*>(&alone), static_cast<nn::Module*>(&norm)}) {
      module->to(Device{});
      module->to(dtype);
      manual_seed(3);
      for (const Tensor& p : module->parameters()) p.copy_(randn(p.shape(), dtype, Device{}) + 1.0);
    }
    norm.to(here.device);
    const std::int64_t begin =
        std::accumulate(shares.begin(), shares.begin() + rank, std::int64_t{0});
    const std::int64_t own = shares[static_cast<std::size_t>(rank)];
    const auto part = [&](const Tensor& whole) { return whole.detach().rows(begin, begin + own); };
    const Tensor mine = Tensor::empty({own, channels, 2, 5}, dtype, here.device);
    const Tensor slope_here = Tensor::empty(mine.shape(), dtype, here.device);
    mine.set_requires_grad();
    Graph graph(captured ? here.device : Device{});
    Tensor y;
    double off = 0;
    for (int step = 0; step < (captured ? 6 : 3); ++step) {
      manual_seed(static_cast<std::uint64_t>(10 + step));
      const Tensor x = randn({samples, channels, 2, 5}, dtype, Device{}) * 2.0 + 1.0;
      const Tensor slope = randn(x.shape(), dtype, Device{});
      const Tensor whole = x.clone().set_requires_grad();
      {
        const NoGrad guard;
        mine.copy_(part(x).to(here.device));
        slope_here.copy_(part(slope).to(here.device));
      }
      graph.run([&] {
        norm.zero_grad();
        mine.zero_grad();
        y = norm(mine);
        sum(y * slope_here).backward();
      });
      alone.zero_grad();
      const Tensor expected = alone(whole);
      sum(expected * slope).backward();
      off = larger(off, difference_to(y, part(expected)));
      off = larger(off, difference_to(mine.grad(), part(whole.grad())));
      const std::vector<Tensor> local = norm.parameters(), all = alone.parameters();
      for (std::size_t i = 0; i < all.size(); ++i) {
        const Tensor total = local[i].grad().detach().to(Device{}).clone();
        group.all_reduce(total).wait();
        off = larger(off, difference_to(total, all[i].grad()));
      }
    }
    CHECK(graph.captured() == captured);
    const NamedTensors buffers = norm.named_buffers(), others = alone.named_buffers();
    REQUIRE(buffers.size() == others.size());
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      off = larger(off, difference_to(buffers[i].second, others[i].second));
      CHECK(same_everywhere(buffers[i].second.to(Device{}), group));
    }
    const std::lock_guard lock(mutex);
    worst = larger(worst, off);
  });
  return worst;
}

// Parameters and buffers after some steps under DDP with a bucket a parameter, some of which are on
// their way when a layer's sums are sent.
inline std::vector<float> train_normalised(const Group& group, Device device) {
  manual_seed(5);
  nn::Sequential net(nn::Linear(4, 6), nn::BatchNorm1d(6), nn::ReLU(), nn::Linear(6, 6),
                     nn::BatchNorm1d(6), nn::Linear(6, 2));
  net.to(Device{});
  for (const Tensor& p : net.parameters()) p.copy_(randn(p.shape(), DType::f32, Device{}));
  net.to(device);
  DDP ddp(nn::convert_sync_batchnorm(net, group), group, {.buckets = apart});
  nn::SGD optimizer(ddp.parameters(), {.lr = 0.01, .momentum = 0.9});
  for (int step = 0; step < 4; ++step) {
    manual_seed(static_cast<std::uint64_t>(20 + 4 * step + group.rank()));
    const Tensor x = randn({3 + group.rank(), 4}, DType::f32, Device{}).to(device);
    optimizer.zero_grad();
    const Tensor y = ddp(x);
    sum(y * y).backward();
    optimizer.step();
  }
  std::vector<float> all;
  for (const auto& [name, tensor] : net.state_dict()) {
    const auto values = cast(tensor.detach().to(Device{}), DType::f32).to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// ... and that they are the same on all ranks, and what they are on the CPU.
inline void check_training_on_devices(const std::function<void(const Group&, Device)>& prepare =
                                          [](const Group&, Device) {}) {
  std::vector<std::vector<float>> all(3);
  std::vector<float> expected;
  ranks(3, [&](const Group& group, int rank) {
    const std::vector<float> here = train_normalised(group, Device{});
    if (rank == 0) expected = here;
  });
  ranks(3, [&](const Group& group, int rank) {
    const OnDevice here(rank);
    prepare(group, here.device);
    all[static_cast<std::size_t>(rank)] = train_normalised(group, here.device);
  });
  CHECK(all[0] == all[1]);
  CHECK(all[0] == all[2]);
  REQUIRE(all[0].size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double scale = std::max(1.0, std::abs(static_cast<double>(expected[i])));
    worst = larger(worst, std::abs(all[0][i] - expected[i]) / scale);
  }
  CHECK(worst < 1e-4);
}

}  // namespace peal::testing
