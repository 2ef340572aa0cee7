// SPDX-License-Identifier: Apache-2.0
// What CUDA IPC must hold between processes, on one GPU or several, and on the host: memory that
// all reach, rounding, groups, replays and training. Started by tests/gpu/run.sh, with two ranks
// and more. What breaks a group is in ipc_failure_test.cpp.
#include <peal/autograd/core/graph.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/cuda_ipc.h>
#include <peal/comm/transport/cuda_ipc/cuda_ipc.h>
#include <peal/launch/devices.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/nn.h>
#include <peal/nn/parallel/ddp.h>

#include <doctest/doctest.h>
#include <peal/tests/difference.h>
#include "mpi_main.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace peal;
using namespace peal::comm;

namespace {

const ProcessGroup& world() { return peal::testing::job().group(); }

Device own_device() {
  return launch::choose_device("cuda", peal::testing::job().where(),
                               device_count(DeviceType::cuda));
}

ProcessGroup over_ipc(const CudaIpcOptions& options) {
  auto group = world().split(0);
  use_cuda_ipc(group, own_device(), options);
  return group;
}

std::int64_t free_bytes() {
  std::size_t free = 0, all = 0;
  PEAL_CHECK(cudaSetDevice(own_device().index) == cudaSuccess &&
                 cudaMemGetInfo(&free, &all) == cudaSuccess,
             "cudaMemGetInfo failed");
  return static_cast<std::int64_t>(free);
}

Tensor on_device(const std::vector<float>& values, DType dtype = DType::f32) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return cast(Tensor::from(values, shape, Device{}), dtype).to(own_device());
}

}  // namespace

TEST_CASE("large all-reduces work in place on memory for collectives") {
  const auto group = world().split(0);
  const CudaIpcTransport& ipc = use_cuda_ipc(group, own_device(), {.half = 1024, .one_shot = 0});
  std::int64_t in_place = 0;
  const int ranks = group.world(), me = group.rank();
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{37}, std::int64_t{5000}}) {
    const Tensor bucket = group.allocate({count + 4}, DType::f32, own_device());
    CHECK(bucket.to_vector<float>() == std::vector<float>(static_cast<std::size_t>(count + 4)));
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{4}, std::int64_t{1}}) {
      std::vector<float> values(static_cast<std::size_t>(count + 4), -1);
      for (std::int64_t i = 0; i < count; ++i) {
        values[static_cast<std::size_t>(at + i)] = static_cast<float>(i % 50 + me);
      }
      bucket.copy_(on_device(values));
      // On one rank the same elements lie elsewhere.
      const Tensor plain = on_device(values);
      for (const bool mixed : {false, true}) {
        const Tensor& used = mixed && me == ranks - 1 ? plain : bucket;
        if (mixed) used.copy_(on_device(values));
        group.all_reduce(used.view().part(at, count)).wait();
        if (ranks > 1 && !mixed && at % 4 == 0) ++in_place;
        CHECK(ipc.in_place() == in_place);
        const auto got = used.to_vector<float>();
        for (std::int64_t i = 0; i < count + 4; ++i) {
          const std::int64_t k = i - at;
          const float sum = static_cast<float>(ranks * (k % 50) + ranks * (ranks - 1) / 2);
          const float want = k >= 0 && k < count ? sum : -1;
          CHECK(got[static_cast<std::size_t>(i)] == want);
        }
      }
    }
  }
}

TEST_CASE("every large collective works on tensors where they lie, if all can reach them") {
  const auto group = world().split(0);
  const CudaIpcTransport& ipc = use_cuda_ipc(group, own_device(), {.half = 1024, .one_shot = 0});
  const int ranks = group.world(), me = group.rank(), last = ranks - 1;
  if (ranks == 1) return;
  constexpr std::int64_t count = 1000;
  const std::int64_t half = ranks * count;
  const Tensor memory = group.allocate({2 * half}, DType::f32, own_device());
  const View first = memory.view().part(0, half), second = memory.view().part(half, half);
  const auto value = [](int rank, std::int64_t i) {
    return static_cast<float>(100 * rank + i % 90);
  };
  std::int64_t done = 0;
  // Fills the first half on each rank, calls f, and looks at so many elements from `at` on.
  const auto check = [&](auto&& f, std::int64_t at, std::int64_t n, auto&& want) {
    std::vector<float> values(static_cast<std::size_t>(2 * half), -1);
    for (std::int64_t i = 0; i < half; ++i) values[static_cast<std::size_t>(i)] = value(me, i);
    memory.copy_(on_device(values));
    world().barrier().wait();
    const Work work = f();
    work.wait();
    CHECK(ipc.in_place() == ++done);
    const auto got = memory.to_vector<float>();
    int wrong = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      if (got[static_cast<std::size_t>(at + i)] != want(i)) ++wrong;
    }
    CHECK(wrong == 0);
  };
  const auto sum = [&](std::int64_t i) {
    float all = 0;
    for (int r = 0; r < ranks; ++r) all += value(r, i);
    return all;
  };
  const View own = first.part(0, count), mine = first.part(me * count, count);
  check([&] { return group.all_gather(second, own); }, half, half,
        [&](std::int64_t i) { return value(static_cast<int>(i / count), i % count); });
  check([&] { return group.all_gather(first, mine); }, 0, half,
        [&](std::int64_t i) { return value(static_cast<int>(i / count), i); });
  check([&] { return group.reduce_scatter(second.part(0, count), first); }, half, count,
        [&](std::int64_t i) { return sum(me * count + i); });
  check([&] { return group.reduce_scatter(mine, first); }, me * count, count,
        [&](std::int64_t i) { return sum(me * count + i); });
  check([&] { return group.all_to_all(second, first); }, half, half,
        [&](std::int64_t i) { return value(static_cast<int>(i / count), me * count + i % count); });
  check([&] { return group.broadcast(first, last); }, 0, half,
        [&](std::int64_t i) { return value(last, i); });
  check([&] { return group.reduce(first, last); }, 0, me == last ? half : 0, sum);
  check([&] { return group.gather(second, own, last); }, half, me == last ? half : 0,
        [&](std::int64_t i) { return value(static_cast<int>(i / count), i % count); });
  check([&] { return group.scatter(second.part(0, count), first, last); }, half, count,
        [&](std::int64_t i) { return value(last, me * count + i); });
}

TEST_CASE("low precision is added in f32 and rounded once, with equal bits on all ranks") {
  for (const std::int64_t most : {0, 1 << 30}) {
    const auto group = over_ipc({.one_shot = most});
    const int ranks = group.world(), me = group.rank();
    // In f16, 2048 + 1 is 2048: only a sum in f32 sees the ones.
    const Tensor x = on_device(std::vector<float>(33, me == 0 ? 2048.0f : 1.0f), DType::f16);
    group.all_reduce(x).wait();
    const float sum = 2048.0f + static_cast<float>(ranks - 1);
    const float want = cast(on_device({sum}, DType::f16), DType::f32).to_vector<float>()[0];
    CHECK(cast(x, DType::f32).to_vector<float>() == std::vector<float>(33, want));

    manual_seed(static_cast<std::uint64_t>(me + 1));
    const Tensor noise = randn({1001}, DType::f32, Device{}).to(own_device());
    group.all_reduce(noise, ReduceOp::avg).wait();
    const auto bits = noise.to_vector<float>();
    const std::string mine(reinterpret_cast<const char*>(bits.data()), bits.size() * sizeof(float));
    for (const std::string& other : group.all_gather_object(mine)) CHECK(other == mine);
  }
}

TEST_CASE("groups within groups have rooms of their own, and give them back") {
  const auto everyone = over_ipc({.half = 1024, .parcel = 1024});
  const int me = everyone.rank();
  constexpr int rounds = 16;
  std::int64_t early = 0, late = 0;  // bytes that are free
  for (int round = 0; round < rounds; ++round) {
    // Where ranks share a device, all look at it while none works.
    everyone.barrier().wait();
    world().barrier().wait();
    if (round == 2) early = free_bytes();
    if (round == rounds - 1) late = free_bytes();
    world().barrier().wait();
    const auto half = everyone.split(me % 2);
    const Tensor mine = on_device({1, 2, 3}), all = on_device({1, 2, 3});
    const Work first = half.all_reduce(mine);
    const Work second = everyone.all_reduce(all);
    first.wait();
    second.wait();
    const auto size = static_cast<float>(half.world()),
               ranks = static_cast<float>(everyone.world());
    CHECK(mine.to_vector<float>() == std::vector<float>{size, 2 * size, 3 * size});
    CHECK(all.to_vector<float>() == std::vector<float>{ranks, 2 * ranks, 3 * ranks});
    const auto none = everyone.new_group({0});
    CHECK(bool(none) == (me == 0));
    // Memory is made anew while that of the last round is given back.
    const Tensor bucket = everyone.allocate({1000}, DType::f32, own_device());
    everyone.all_reduce(bucket).wait();
    CHECK(bucket.to_vector<float>() == std::vector<float>(1000));
  }
  // 13 rounds that kept one segment each would have taken more; those of a round may lie there yet.
  constexpr std::int64_t segment = 2 << 20;
  CHECK(early - late < 13 * segment - segment);
}

TEST_CASE("captured all-reduces are replayed among others, one-shot and two-shot") {
  for (const std::int64_t most : {0, 1 << 30}) {
    const auto group = over_ipc({.one_shot = most});
    const StreamGuard own(Stream::create(own_device()));
    const Tensor x = on_device(std::vector<float>(300, 1)), one = on_device({5});
    const auto ranks = static_cast<float>(group.world());
    Graph graph(own_device());
    float want = 1;
    for (int k = 0; k < 4; ++k) {
      graph.run([&] { group.all_reduce(x).wait(); });
      want *= ranks;
      group.all_reduce(one, ReduceOp::max).wait();
      CHECK(x.to_vector<float>() == std::vector<float>(300, want));
      CHECK(one.to_vector<float>() == std::vector<float>{5});
    }
    CHECK(graph.captured());
  }
}

TEST_CASE("ranks over CUDA IPC train as one on the CPU") {
  constexpr int rows = 12, steps = 3;
  const auto train = [&](Device device, int begin, int end, ProcessGroup group) {
    manual_seed(3);
    nn::Module net = nn::mlp({6, 8, 3});
    net.to(device);
    std::optional<nn::DistributedDataParallel> ddp;
    nn::Module model = net;
    if (group) {
      ddp.emplace(net, group,
                  nn::DDPOptions{.buckets = nn::BucketCaps{.first_bytes = 64, .bytes = 256}});
      model = *ddp;
    }
    nn::SGD optimizer(net.parameters(), {.lr = 1e-2, .momentum = 0.9});
    for (int k = 0; k < steps; ++k) {
      manual_seed(100 + static_cast<std::uint64_t>(k));
      const Tensor x = randn({rows, 6}, DType::f32, Device{}).rows(begin, end).to(device);
      std::vector<std::int64_t> y;
      for (int i = begin; i < end; ++i) y.push_back((3 * i + k) % 3);
      optimizer.zero_grad();
      cross_entropy(model(x), Tensor::from(y, {end - begin}, device)).backward();
      optimizer.step();
    }
    std::vector<float> all;
    for (const Tensor& parameter : net.parameters()) {
      const auto values = parameter.to_vector<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const auto alone = train({}, 0, rows, {});
  for (const std::int64_t most : {0, 1 << 30}) {
    const auto group = over_ipc({.one_shot = most});
    const int part = rows / group.world(), me = group.rank();
    if (part * group.world() != rows) return;
    const auto mine = train(own_device(), me * part, (me + 1) * part, group);
    REQUIRE(mine.size() == alone.size());
    double worst = 0;
    for (std::size_t i = 0; i < alone.size(); ++i) {
      worst = peal::testing::larger(worst, std::abs(mine[i] - alone[i]));
    }
    CHECK(worst < 2e-5);
  }
}
