// SPDX-License-Identifier: Apache-2.0
// P ranks train as one: the same global batch, split over the ranks, gives the parameters of one
// process.
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/difference.h>
#include "mpi_main.h"

using namespace peal;

namespace {

constexpr std::int64_t global_batch = 24;  // 1, 2, 3 and 4 ranks divide it
constexpr int steps = 50;

struct Net : nn::Module {
  nn::Conv2d conv = add("conv", nn::Conv2d(1, 4, 3));
  nn::Linear fc1 = add("fc1", nn::Linear(100, 32));
  nn::Linear fc2 = add("fc2", nn::Linear(32, 10));
  Tensor forward(const Tensor& x) override {
    const Tensor y = max_pool2d(relu(conv(x)), {2, 2});
    return fc2(relu(fc1(flatten(y, 1))));
  }
};

// Batch k of the run, whole.
std::pair<Tensor, Tensor> batch(int k, DType dtype) {
  const Generator before =
      std::exchange(context().generator, Generator{1000 + static_cast<std::uint64_t>(k), 0});
  const Tensor x = randn({global_batch, 1, 12, 12}, dtype);
  std::vector<std::int64_t> classes;
  for (std::int64_t i = 0; i < global_batch; ++i) classes.push_back((i * 7 + k) % 10);
  context().generator = before;
  return {x, Tensor::from(classes, {global_batch})};
}

using MakeOptimizer = std::function<std::unique_ptr<nn::Optimizer>(std::vector<Tensor>)>;

Net fresh_net(DType dtype, std::uint64_t seed) {
  manual_seed(seed);
  Net net;
  net.to(dtype);
  return net;
}

// This rank's rows of the global batch.
std::pair<Tensor, Tensor> share(const std::pair<Tensor, Tensor>& whole,
                                const comm::ProcessGroup& group) {
  const std::int64_t rows = global_batch / group.world(), first = rows * group.rank();
  return {whole.first.rows(first, first + rows), whole.second.rows(first, first + rows)};
}

bool identical_on_all_ranks(const std::vector<Tensor>& tensors, const comm::ProcessGroup& group) {
  std::string bytes;
  for (const Tensor& t : tensors) bytes.append(static_cast<const char*>(t.raw()), t.view().bytes());
  const auto all = group.all_gather_object(bytes);
  return std::all_of(all.begin(), all.end(),
                     [&](const std::string& other) { return other == all[0]; });
}

void check_f64(const MakeOptimizer& make) {
  const comm::ProcessGroup& group = testing::job().group();
  Net alone = fresh_net(DType::f64, 5);
  const auto alone_optimizer = make(alone.parameters());
  // Different seeds: the wrapper must bring rank 0's parameters to all.
  Net net = fresh_net(DType::f64, 5 + static_cast<std::uint64_t>(group.rank()));
  nn::DistributedDataParallel ddp(net, testing::job().group(),
                                  {.buckets = nn::BucketCaps{.first_bytes = 256, .bytes = 4096}});
  const auto optimizer = make(ddp.parameters());
  for (int k = 0; k < steps; ++k) {
    const auto whole = batch(k, DType::f64);
    alone_optimizer->zero_grad();
    cross_entropy(alone(whole.first), whole.second).backward();
    alone_optimizer->step();

    const auto [x, y] = share(whole, group);
    optimizer->zero_grad();
    cross_entropy(ddp(x), y).backward();
    optimizer->step();
    CHECK(identical_on_all_ranks(ddp.parameters(), group));
  }
  double worst = 0;
  const auto mine = ddp.parameters(), theirs = alone.parameters();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    for (std::int64_t j = 0; j < mine[i].numel(); ++j) {
      worst =
          testing::larger(worst, std::abs(mine[i].data<double>()[j] - theirs[i].data<double>()[j]));
    }
  }
  CHECK(worst < 1e-10);
  if (group.world() == 3)
    CHECK(worst > 0);  // thirds round: equal bits would mean that nothing was averaged
  if (group.rank() == 0)
    MESSAGE("world " << group.world() << ": parameters differ by at most " << worst);
}

}  // namespace

TEST_CASE("f64: 50 steps of SGD with momentum") {
  check_f64([](std::vector<Tensor> parameters) -> std::unique_ptr<nn::Optimizer> {
    return std::make_unique<nn::SGD>(std::move(parameters),
                                     nn::SGDOptions{.lr = 0.05, .momentum = 0.9});
  });
}

TEST_CASE("f64: 50 steps of AdamW") {
  check_f64([](std::vector<Tensor> parameters) -> std::unique_ptr<nn::Optimizer> {
    return std::make_unique<nn::AdamW>(std::move(parameters), nn::AdamWOptions{.lr = 1e-3});
  });
}

TEST_CASE("f32: gradients from equal parameters, at every step; losses alike") {
  const comm::ProcessGroup& group = testing::job().group();
  Net net = fresh_net(DType::f32, 9);
  nn::DistributedDataParallel ddp(net, testing::job().group(),
                                  {.buckets = nn::BucketCaps{.first_bytes = 256, .bytes = 4096}});
  nn::AdamW optimizer(ddp.parameters(), {.lr = 1e-3});
  Net alone = fresh_net(DType::f32, 9);
  for (int k = 0; k < steps; ++k) {
    alone.load_state_dict(ddp.state_dict());
    const auto whole = batch(k, DType::f32);
    alone.zero_grad();
    const Tensor whole_loss = cross_entropy(alone(whole.first), whole.second);
    whole_loss.backward();

    const auto [x, y] = share(whole, group);
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(ddp(x), y);
    loss.backward();
    const Tensor mean_loss = loss.detach().clone();
    group.all_reduce(mean_loss, comm::ReduceOp::avg).wait();
    CHECK(std::abs(mean_loss.item<float>() - whole_loss.item<float>()) < 1e-3);
    const auto mine = ddp.parameters(), theirs = alone.parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      double difference = 0, norm = 0;
      for (std::int64_t j = 0; j < mine[i].numel(); ++j) {
        const double a = mine[i].grad().data<float>()[j], b = theirs[i].grad().data<float>()[j];
        difference += (a - b) * (a - b);
        norm += b * b;
      }
      CHECK(std::sqrt(difference) <= 1e-5 * std::sqrt(norm));
    }
    optimizer.step();
    CHECK(identical_on_all_ranks(ddp.parameters(), group));
  }
}

TEST_CASE("no_sync accumulates, and the next backward averages the sum") {
  const comm::ProcessGroup& group = testing::job().group();
  Net net = fresh_net(DType::f64, 3), alone = fresh_net(DType::f64, 3);
  nn::DistributedDataParallel ddp(net, testing::job().group());
  const auto first = batch(0, DType::f64), second = batch(1, DType::f64);
  {
    const auto guard = ddp.no_sync();
    const auto [x, y] = share(first, group);
    const std::uint64_t before = group.sequence();
    cross_entropy(ddp(x), y).backward();
    CHECK(group.sequence() == before);
  }
  const auto [x, y] = share(second, group);
  cross_entropy(ddp(x), y).backward();
  cross_entropy(alone(first.first), first.second).backward();
  cross_entropy(alone(second.first), second.second).backward();
  const auto mine = ddp.parameters(), theirs = alone.parameters();
  double worst = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    for (std::int64_t j = 0; j < mine[i].numel(); ++j) {
      worst = testing::larger(
          worst, std::abs(mine[i].grad().data<double>()[j] - theirs[i].grad().data<double>()[j]));
    }
  }
  CHECK(worst < 1e-12);
}

namespace {

struct Normed : nn::Module {
  nn::Conv2d conv = add("conv", nn::Conv2d(1, 4, 3));
  nn::BatchNorm2d norm = add("norm", nn::BatchNorm2d(4));
  nn::Linear fc = add("fc", nn::Linear(100, 10));
  Tensor forward(const Tensor& x) override {
    return fc(flatten(max_pool2d(relu(norm(conv(x))), {2, 2}), 1));
  }
};

}  // namespace

TEST_CASE("batch norm: after each step all ranks have one model, evaluated by any of them alone") {
  const comm::ProcessGroup& group = testing::job().group();
  manual_seed(7);
  Normed net;
  nn::DistributedDataParallel ddp(net, testing::job().group());
  nn::SGD optimizer(ddp.parameters(), {.lr = 0.05});
  std::vector<Tensor> whole = ddp.parameters();
  for (const auto& [name, buffer] : ddp.named_buffers()) whole.push_back(buffer);
  const Tensor mean = net.norm.running_mean;
  for (int k = 0; k < 5; ++k) {
    const auto [x, y] = share(batch(k, DType::f32), group);
    optimizer.zero_grad();
    cross_entropy(ddp(x), y).backward();
    optimizer.step();
    CHECK(identical_on_all_ranks(whole, group));
    if (group.rank() == k % group.world()) {
      ddp.eval();
      ddp(x);
      ddp.train();
    }
  }
  CHECK(mean.to_vector<float>() != std::vector<float>(4, 0));
  CHECK(net.norm.num_batches_tracked.item<std::int64_t>() == 5);
}

TEST_CASE("synchronised batch norm: ranks train as one, statistics included") {
  const comm::ProcessGroup& group = testing::job().group();
  manual_seed(7);
  Normed net, alone;
  net.to(DType::f64);
  alone.to(DType::f64);
  alone.load_state_dict(net.state_dict());
  nn::DistributedDataParallel ddp(nn::convert_sync_batchnorm(net, group), group,
                                  {.buckets = {}, .broadcast_buffers = false});
  nn::SGD all(ddp.parameters(), {.lr = 0.05, .momentum = 0.9});
  nn::SGD one(alone.parameters(), {.lr = 0.05, .momentum = 0.9});
  for (int k = 0; k < 10; ++k) {
    const auto whole = batch(k, DType::f64);
    const auto [x, y] = share(whole, group);
    all.zero_grad();
    cross_entropy(ddp(x), y).backward();
    all.step();
    one.zero_grad();
    cross_entropy(alone(whole.first), whole.second).backward();
    one.step();
  }
  std::vector<Tensor> mine;
  double worst = 0;
  const NamedTensors expected = alone.state_dict();
  for (const auto& [name, tensor] : net.state_dict()) {
    const Tensor a = cast(tensor, DType::f64), b = cast(expected[mine.size()].second, DType::f64);
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      worst = testing::larger(worst, std::abs(a.data<double>()[i] - b.data<double>()[i]));
    }
    mine.push_back(tensor);
  }
  CHECK(worst < 1e-10);
  CHECK(identical_on_all_ranks(mine, group));
}

TEST_CASE("buckets are launched while backward goes on, in plan order") {
  const comm::ProcessGroup& group = testing::job().group();
  Net net = fresh_net(DType::f32, 3);
  nn::DistributedDataParallel ddp(net, testing::job().group(),
                                  {.buckets = nn::BucketCaps{.first_bytes = 1, .bytes = 1}});
  CHECK(ddp.reducer().buckets().size() == ddp.parameters().size());
  const auto [x, y] = share(batch(0, DType::f32), group);
  std::uint64_t when_conv_came = 0;
  const std::uint64_t before = group.sequence();
  // The first layer's gradient is the last to come: by then the others' buckets are under way.
  ddp.parameters()[0].grad_slot().add_hook(
      [&](const Tensor&) { when_conv_came = group.sequence(); });
  cross_entropy(ddp(x), y).backward();
  CHECK(when_conv_came - before >= 4);
  CHECK(group.sequence() - before == 6);
}

TEST_CASE("models that differ are an error on every rank, with the first difference") {
  const comm::ProcessGroup& group = testing::job().group();
  if (group.world() == 1) return;
  manual_seed(1);
  nn::Linear linear(4, group.rank() == 1 ? 6 : 5);
  CHECK_THROWS_WITH(nn::DistributedDataParallel(linear, testing::job().group()),
                    doctest::Contains("'parameter weight f32 [6, 4]' on rank 1"));
}
