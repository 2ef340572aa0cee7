// SPDX-License-Identifier: Apache-2.0
// Collectives in captured graphs, over NCCL's stand-in: ranks are threads, streams are lazy, and
// what is captured matches its like alone.
#include <peal/autograd/core/graph.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/nccl.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/nn.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include "collective_values.h"
#include "nccl_for_tests.h"
#include "on_rank.h"
#include "queued.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::error_of;
using peal::testing::OnDevice;

namespace {

enum class Way { calls, graph };

void on_devices(int world, const ProcessGroup::Options& options, bool nccl,
                const std::function<void(const ProcessGroup&)>& f) {
  run_ranks(world, options, [&](const ProcessGroup& group) {
    const OnDevice here(group.rank());
    if (nccl) use_nccl(group, here.device);
    f(group);
  });
}

std::vector<float> values(const nn::Module& net) {
  std::vector<float> all;
  for (const Tensor& parameter : net.parameters()) {
    const auto some = parameter.to_vector<float>();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

constexpr std::int64_t rows = 6;  // of a batch; 1, 2 and 3 ranks divide it

// Trains on this rank's rows of each batch; the parameters at the end.
std::vector<float> train(Device device, std::int64_t begin, std::int64_t end, bool captured,
                         const ProcessGroup& group) {
  manual_seed(3);
  nn::Module net = nn::mlp({6, 8, 3});
  net.to(device);
  std::optional<nn::DistributedDataParallel> ddp;
  if (group) {
    ddp.emplace(net, group,
                nn::DDPOptions{.buckets = nn::BucketCaps{.first_bytes = 64, .bytes = 128}});
  }
  nn::Module model = ddp ? nn::Module(*ddp) : net;
  nn::SGD optimizer(net.parameters(), {.lr = 1e-2, .momentum = 0.9});
  const Tensor x = Tensor::empty({end - begin, 6}, DType::f32, device);
  const Tensor y = Tensor::empty({end - begin}, DType::i64, device);
  Graph graph(captured ? device : Device{});
  Tensor loss;
  for (int step = 0; step < 8; ++step) {
    manual_seed(static_cast<std::uint64_t>(10 + step));
    x.copy_(randn({rows, 6}, DType::f32, Device{}).rows(begin, end).to(device));
    std::vector<std::int64_t> classes;
    for (std::int64_t i = begin; i < end; ++i) classes.push_back((i + step) % 3);
    y.copy_(Tensor::from(classes, {end - begin}, device));
    graph.run([&] {
      optimizer.zero_grad();
      loss = cross_entropy(model(x), y);
      loss.backward();
    });
    optimizer.step();
    // Calls of its own between replays keep their place among them.
    if (group && step % 3 == 2) {
      const Tensor mean = loss.detach().clone();
      group.all_reduce(mean, ReduceOp::avg).wait();
      CHECK(std::isfinite(mean.item<float>()));
    }
  }
  CHECK(graph.captured() == captured);
  return values(net);
}

}  // namespace

TEST_CASE("a captured step of DDP trains as calls do, and as one rank on the CPU") {
  const auto alone = train({}, 0, rows, false, {});
  for (const int world : {1, 2, 3}) {
    for (const char* algorithms : {"", "all_reduce=ring"}) {
      CAPTURE(world);
      CAPTURE(std::string(algorithms));
      const auto all = [&](Way way) {
        std::vector<std::vector<float>> results(static_cast<std::size_t>(world));
        on_devices(world, {.algorithms = algorithms}, true, [&](const ProcessGroup& group) {
          const std::int64_t part = rows / world, first = group.rank() * part;
          results[static_cast<std::size_t>(group.rank())] =
              train(context().device, first, first + part, way == Way::graph, group);
        });
        for (const auto& result : results) CHECK(result == results[0]);
        return results[0];
      };
      const auto calls = all(Way::calls), graph = all(Way::graph);
      CHECK(graph == calls);
      REQUIRE(graph.size() == alone.size());
      for (std::size_t i = 0; i < alone.size(); ++i) CHECK(std::abs(graph[i] - alone[i]) < 2e-5f);
    }
  }
}

TEST_CASE("a captured collective is joined where nobody waits, and is none of the host's") {
  on_devices(2, {}, true, [](const ProcessGroup& group) {
    const Device device = context().device;
    const Tensor x = Tensor::zeros({50}, DType::f32, device);
    Graph graph(device, 1);
    Work work;
    const auto step = [&] {
      peal::testing::scale(x, 2);
      work = group.all_reduce(x);
    };
    graph.run([&] {
      step();
      work.wait();
    });
    const std::uint64_t before = group.sequence();
    x.copy_(full({50}, 1, DType::f32, device));
    const int held = cuda_host::nccl_collectives();
    graph.run(step);
    CHECK(graph.captured());
    CHECK(x.to_vector<float>()[49] == 4);
    CHECK(cuda_host::nccl_collectives() > held);
    CHECK(group.sequence() == before + 2);  // the collective's, and the replay's
    CHECK(contains(error_of([&] { work.synchronize(); }), "lies in a graph"));
    CHECK(contains(error_of([&] { work.then([] {}); }), "lies in a graph"));
    CHECK(contains(error_of([&] { static_cast<void>(work.test()); }), "lies in a graph"));
    work.wait();
    graph.run(step);
    CHECK(x.to_vector<float>()[0] == 16);
    group.barrier().wait();
  });
}

TEST_CASE("what the host moves cannot be captured, and everything goes on") {
  for (const bool nccl : {false, true}) {
    on_devices(2, {}, nccl, [&](const ProcessGroup& group) {
      const Device device = context().device;
      const Tensor x = Tensor::zeros({10}, DType::f32, device);
      const Tensor here = Tensor::zeros({10}, DType::f32, Device{});
      Graph graph(device, 1);
      const auto refused = [&](const std::function<void()>& f) {
        return error_of([&] { graph.run(f); });
      };
      graph.run([&] { group.all_reduce(here).wait(); });
      const std::uint64_t before = group.sequence();
      const std::string error = refused([&] {
        peal::testing::scale(x, 2);
        group.all_reduce(nccl ? here : x, ReduceOp::sum, "loss").wait();
      });
      CAPTURE(error);
      CHECK(contains(error, concat("[comm] rank ", group.rank(), ", all_reduce #", before,
                                   " (sum of 10 f32; loss): it cannot be captured in a graph")));
      CHECK(contains(error, "over threads"));
      CHECK(contains(error, "attach NCCL"));
      CHECK(contains(refused([&] { group.send(x, 1 - group.rank()).wait(); }), "send to rank"));
      CHECK(contains(refused([&] { group.barrier().wait(); }), "barrier #"));
      if (nccl) {
        CHECK(contains(refused([&] { group.allocate({8}, DType::f32, device); }),
                       concat("[comm] rank ", group.rank(), ", allocate of [8] f32 on ", device)));
      }
      CHECK(contains(refused([&] { group.monitored_barrier(std::chrono::seconds(60)); }),
                     "monitored_barrier: it cannot be captured in a graph"));
      CHECK_FALSE(graph.captured());
      CHECK(group.sequence() == before);
      CHECK_FALSE(group.poisoned());
      x.copy_(full({10}, 3, DType::f32, device));
      group.all_reduce(x).wait();
      CHECK(x.to_vector<float>()[9] == 6);
    });
  }
}

TEST_CASE("a capture that is left half way leaves DDP and the group as they were") {
  on_devices(2, {}, true, [](const ProcessGroup& group) {
    const Device device = context().device;
    manual_seed(1);
    nn::Module net = nn::mlp({4, 5, 2});
    net.to(device);
    nn::DistributedDataParallel model(net, group,
                                      {.buckets = nn::BucketCaps{.first_bytes = 8, .bytes = 8}});
    const Tensor x = full({2, 4}, group.rank() + 1, DType::f32, device);
    const auto step = [&] {
      for (const Tensor& parameter : net.parameters()) parameter.zero_grad();
      mean(model(x)).backward();
    };
    step();
    const auto expected = net.parameters()[0].grad().to_vector<float>();
    Graph graph(device, 1);
    graph.run(step);
    // When the first gradients are there, some buckets are captured; then somebody waits.
    const Tensor last = net.parameters().back();
    bool waits = true;
    const std::uint64_t hook = net.parameters()[0].grad_slot().add_hook([&](const Tensor& grad) {
      if (waits && Graph::capturing() != nullptr) grad.to_vector<float>();
    });
    CHECK(error_of([&] { graph.run(step); }) != "nothing");
    CHECK_FALSE(graph.captured());
    step();
    CHECK(net.parameters()[0].grad().to_vector<float>() == expected);
    waits = false;
    for (int i = 0; i < 3; ++i) graph.run(step);
    CHECK(graph.captured());
    CHECK(net.parameters()[0].grad().to_vector<float>() == expected);
    net.parameters()[0].grad_slot().remove_hook(hook);
    group.barrier().wait();
  });
}

TEST_CASE("no_sync within a captured step accumulates there") {
  const auto train_parts = [](bool captured) {
    std::vector<float> result;
    on_devices(2, {}, true, [&](const ProcessGroup& group) {
      const Device device = context().device;
      manual_seed(1);
      nn::Module net = nn::mlp({4, 5, 2});
      net.to(device);
      nn::DistributedDataParallel model(net, group);
      const Tensor x = full({2, 4}, group.rank() + 1, DType::f32, device);
      Graph graph(captured ? device : Device{});
      for (int i = 0; i < 5; ++i) {
        graph.run([&] {
          for (const Tensor& parameter : net.parameters()) parameter.zero_grad();
          {
            const auto guard = model.no_sync();
            mean(model(x)).backward();
          }
          mean(model(x * 2)).backward();
        });
      }
      group.barrier().wait();
      if (group.rank() == 0) result = net.parameters()[0].grad().to_vector<float>();
    });
    return result;
  };
  CHECK(train_parts(true) == train_parts(false));
}

TEST_CASE("buffers that a captured step writes, and no call before it wrote, are named") {
  const std::string message = error_of([] {
    on_devices(2, {}, true, [](const ProcessGroup& group) {
      const Device device = context().device;
      manual_seed(1);
      nn::BatchNorm1d norm(4);
      nn::Sequential net(norm, nn::Linear(4, 2));
      net.to(device);
      nn::DistributedDataParallel model(net, group);
      const Tensor x = full({2, 4}, group.rank() + 1.0, DType::f32, device);
      Graph graph(device, 2);
      for (int i = 0; i < 4; ++i) {
        norm.train(i >= 2);
        graph.run([&] {
          for (const Tensor& parameter : net.parameters()) parameter.zero_grad();
          mean(model(x)).backward();
        });
      }
    });
  });
  CAPTURE(message);
  CHECK(contains(message, "0.running_mean, 0.running_var, 0.num_batches_tracked"));
  CHECK(contains(message, "call the step as it is captured"));
}

TEST_CASE("ranks that replay while others call are told, by name") {
  const std::string error = error_of([] {
    on_devices(2, {.deadline = std::chrono::milliseconds(8000)}, true,
               [](const ProcessGroup& group) {
                 const Device device = context().device;
                 const Tensor x = Tensor::zeros({8}, DType::f32, device);
                 Graph graph(device, 1);
                 const auto step = [&] { group.all_reduce(x).wait(); };
                 for (int i = 0; i < 3; ++i) graph.run(step);
                 x.to_vector<float>();
                 if (group.rank() == 0) {
                   graph.run(step);
                 } else {
                   group.all_reduce(x).wait();
                 }
                 current_stream(device).synchronize();
                 group.barrier().wait();
               });
  });
  CAPTURE(error);
  CHECK(contains(error, "replay #"));
  CHECK(contains(error, "all_reduce #"));
  CHECK(contains(cuda_host::nccl_hang(), "of a graph meets what is not the same one"));
}

TEST_CASE("a rank that fails ends the replays of others") {
  const std::string error = error_of([] {
    on_devices(2, {}, true, [](const ProcessGroup& group) {
      const Device device = context().device;
      const Tensor x = Tensor::zeros({8}, DType::f32, device);
      Graph graph(device, 1);
      const auto step = [&] { group.all_reduce(x).wait(); };
      for (int i = 0; i < 3; ++i) graph.run(step);
      x.to_vector<float>();
      if (group.rank() == 1) throw std::runtime_error("disk of rank 1 is on fire");
      graph.run(step);
      current_stream(device).synchronize();  // it would never end
      graph.run(step);                       // throws
    });
  });
  CHECK(contains(error, "on fire"));
}

TEST_CASE("a rank that fails ends a first call of others that waits within their capture") {
  std::atomic<bool> captures{false};
  std::string told;
  const std::string error = error_of([&] {
    on_devices(2, {}, true, [&](const ProcessGroup& group) {
      const Device device = context().device;
      const Tensor x = Tensor::zeros({8}, DType::f32, device);
      Graph graph(device, 1);
      graph.run([] {});  // the collective is not called before it is captured
      if (group.rank() == 1) {
        while (!captures) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(300));  // rank 0 is in its call
        throw std::runtime_error("disk of rank 1 is on fire");
      }
      told = error_of([&] {
        graph.run([&] {
          captures = true;
          group.all_reduce(x).wait();
        });
      });
    });
  });
  CAPTURE(told);
  CHECK(contains(error, "on fire"));
  CHECK(contains(told, "in a graph"));
  CHECK(contains(told, "on fire"));
}

// The communicator ends in a thread of its own then, which may be late.
TEST_CASE("memory for collectives outlives the communicator that a failure ends") {
  const std::string error = error_of([] {
    on_devices(2, {}, true, [](const ProcessGroup& group) {
      const Device device = context().device;
      const Tensor bucket = group.allocate({8}, DType::f32, device);
      Graph graph(device, 1);
      for (int i = 0; i < 3; ++i) graph.run([&] { group.all_reduce(bucket).wait(); });
      bucket.to_vector<float>();
      if (group.rank() == 1) throw std::runtime_error("disk of rank 1 is on fire");
      group.barrier().wait();  // throws
    });
  });
  CHECK(contains(error, "on fire"));
  on_devices(1, {}, true, [](const ProcessGroup& group) { group.barrier().wait(); });
}

TEST_CASE("a graph whose group is gone cannot be replayed, and holds nobody up") {
  on_devices(2, {}, true, [](const ProcessGroup& everyone) {
    const Device device = context().device;
    const Tensor x = full({8}, 1, DType::f32, device);
    Graph graph(device, 1);
    {
      const auto group = everyone.split(0);
      for (int i = 0; i < 3; ++i) graph.run([&] { group.all_reduce(x).wait(); });
    }
    CHECK(x.to_vector<float>()[0] == 8);
    CHECK(contains(error_of([&] { graph.run([] {}); }),
                   "graph: the process group of its collectives is gone; make a new graph"));
  });
  CHECK_FALSE(contains(cuda_host::nccl_hang(), "ncclCommFinalize"));
}

TEST_CASE("buffers are rank 0's after each replay, as after each call") {
  const auto train_norm = [](bool captured) {
    std::vector<float> result;
    on_devices(2, {}, true, [&](const ProcessGroup& group) {
      const Device device = context().device;
      manual_seed(1);
      nn::BatchNorm1d norm(4);
      nn::Sequential net(norm, nn::Linear(4, 2));
      net.to(device);
      nn::DistributedDataParallel model(net, group);
      const Tensor x = Tensor::empty({2, 4}, DType::f32, device);
      Graph graph(captured ? device : Device{});
      for (int i = 0; i < 5; ++i) {
        manual_seed(static_cast<std::uint64_t>(10 * i + group.rank()));
        x.copy_(randn({2, 4}, DType::f32, Device{}).to(device));
        graph.run([&] {
          for (const Tensor& parameter : net.parameters()) parameter.zero_grad();
          mean(model(x)).backward();
        });
      }
      CHECK(graph.captured() == captured);
      const auto values = norm.running_mean.to_vector<float>();
      const std::string mine(reinterpret_cast<const char*>(values.data()), 4 * sizeof(float));
      const auto all = group.all_gather_object(mine);
      CHECK(all[0] == all[1]);
      CHECK(norm.num_batches_tracked.item<std::int64_t>() == 5);
      if (group.rank() == 0) result = values;
    });
    return result;
  };
  CHECK(train_norm(true) == train_norm(false));
}

TEST_CASE(
    "a captured step keeps buckets in their places among the sums of synchronised batch norm") {
  // Rank 0 alone takes the branch: its buckets are the first of the plan, and complete at the end.
  struct Net : nn::Module {
    nn::Linear in = add("in", nn::Linear(3, 4));
    nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(4));
    nn::Linear out = add("out", nn::Linear(4, 2)), branch = add("branch", nn::Linear(3, 3));
    Tensor run(const Tensor& x, bool takes) { return out(norm(in(takes ? branch(x) : x))); }
  };
  const auto train_branch = [](bool captured) {
    std::vector<float> result;
    on_devices(2, {}, true, [&](const ProcessGroup& group) {
      const Device device = context().device;
      manual_seed(1);
      Net net;
      net.to(device);
      nn::convert_sync_batchnorm(net, group);
      nn::DistributedDataParallel model(
          net, group, {.buckets = {.first_bytes = 1, .bytes = 1}, .static_graph = true});
      const Tensor x = randn({4, 3}, DType::f32, Device{}).to(device);
      Graph graph(captured ? device : Device{}, 1);  // one call before it
      for (int i = 0; i < 4; ++i) {
        graph.run([&] {
          for (const Tensor& parameter : net.parameters()) parameter.zero_grad();
          const Tensor y = model.call(&Net::run, x * (group.rank() + 1), group.rank() == 0);
          sum(y * y).backward();
        });
      }
      CHECK(graph.captured() == captured);
      group.barrier().wait();
      std::vector<float> all;
      for (const Tensor& parameter : net.parameters()) {
        const auto some = parameter.grad().to_vector<float>();
        all.insert(all.end(), some.begin(), some.end());
      }
      if (group.rank() == 0) result = all;
    });
    return result;
  };
  const auto calls = train_branch(false), graph = train_branch(true);
  REQUIRE(graph.size() == calls.size());
  for (std::size_t i = 0; i < graph.size(); ++i) CHECK(std::abs(graph[i] - calls[i]) < 1e-4f);
}
