// SPDX-License-Identifier: Apache-2.0
// Ranks that train on a device equal one that trains on the CPU: with DDP over the CPU's transport
// (threads, staged through page-locked memory), bit for bit among themselves, and while a captured
// step is replayed. On a GPU and on the host.
#include <peal/autograd/core/graph.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/nn.h>
#include <peal/nn/parallel/ddp.h>

#include <doctest/doctest.h>
#include <peal/tests/difference.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

using namespace peal;

namespace {

constexpr std::int64_t rows = 12;  // 1, 2, 3 and 4 ranks divide it
constexpr int steps = 4;

struct Net : nn::Module {
  nn::Conv2d conv = add("conv", nn::Conv2d(1, 4, 3));
  nn::BatchNorm2d norm = add("norm", nn::BatchNorm2d(4));
  nn::Linear fc = add("fc", nn::Linear(36, 5));
  Tensor forward(const Tensor& x) override {
    return fc(flatten(max_pool2d(relu(norm(conv(x))), {2, 2}), 1));
  }
};

// Trains on rows [begin, end) of each batch, on `device`; the parameters at the end.
std::vector<float> train(Device device, std::int64_t begin, std::int64_t end,
                         const std::function<nn::Module(nn::Module)>& wrap) {
  manual_seed(3);
  Net net;
  net.eval();  // batch statistics would differ between a part and the whole
  net.to(device);
  nn::Module model = wrap(net);
  nn::SGD optimizer(net.parameters(), {.lr = 1e-2, .momentum = 0.9});
  for (int k = 0; k < steps; ++k) {
    manual_seed(100 + static_cast<std::uint64_t>(k));
    const Tensor x = randn({rows, 1, 8, 8}, DType::f32, Device{}).rows(begin, end).to(device);
    std::vector<std::int64_t> y;
    for (std::int64_t i = begin; i < end; ++i) y.push_back((3 * i + k) % 5);
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
}

}  // namespace

TEST_CASE("ranks on devices train as one on the CPU") {
  const auto alone = train({}, 0, rows, [](nn::Module net) { return net; });
  const int devices = device_count(DeviceType::cuda);
  for (const int world : {1, 2, 3, 4}) {
    std::vector<std::vector<float>> results(static_cast<std::size_t>(world));
    comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
      const Device device{DeviceType::cuda, group.rank() % devices};
      const StreamGuard own(Stream::create(device));  // ranks that are threads share no stream
      const std::int64_t part = rows / world;
      std::optional<nn::DistributedDataParallel> ddp;
      results[static_cast<std::size_t>(group.rank())] =
          train(device, group.rank() * part, (group.rank() + 1) * part, [&](nn::Module net) {
            ddp.emplace(net, group,
                        nn::DDPOptions{.buckets = nn::BucketCaps{.first_bytes = 64, .bytes = 512}});
            return nn::Module(*ddp);
          });
    });
    for (const auto& result : results) {
      CHECK(result == results[0]);
      REQUIRE(result.size() == alone.size());
      double worst = 0;
      for (std::size_t i = 0; i < alone.size(); ++i) {
        worst = testing::larger(worst, std::abs(result[i] - alone[i]));
      }
      CAPTURE(world);
      CHECK(worst < 2e-5);
    }
  }
}

namespace {

// Its first part is on the CPU or a device, its last on another.
struct Split : nn::Module {
  nn::Conv2d conv = add("conv", nn::Conv2d(1, 4, 3));
  nn::BatchNorm2d norm = add("norm", nn::BatchNorm2d(4));
  nn::Linear fc = add("fc", nn::Linear(36, 5));
  Tensor forward(const Tensor& x) override {
    const Tensor h = max_pool2d(relu(norm(conv(x.to(conv.weight.device())))), {2, 2});
    return fc(flatten(h, 1).to(fc.weight.device())).to(Device{});
  }
};

}  // namespace

TEST_CASE("a model on several devices has buckets on each, and trains as one on the CPU") {
  const auto train_split = [](Device first, Device last, const comm::ProcessGroup* group) {
    constexpr int world = 2;
    manual_seed(3);
    Split net;
    net.conv.to(first);
    net.norm.to(first);
    net.fc.to(last);
    net.norm.eval();  // of a part of a batch they would be others
    std::optional<nn::DistributedDataParallel> ddp;
    if (group != nullptr) {
      ddp.emplace(net, *group, nn::DDPOptions{.buckets = {.first_bytes = 64, .bytes = 512}});
      for (const nn::Bucket& bucket : ddp->reducer().buckets()) {
        for (const auto& entry : bucket.entries) {
          const Tensor p = net.parameters()[static_cast<std::size_t>(entry.parameter)];
          CHECK(p.device() == (bucket.part == 0 ? first : last));
        }
      }
    }
    nn::SGD optimizer(net.parameters(), {.lr = 1e-2, .momentum = 0.9});
    for (int k = 0; k < steps; ++k) {
      manual_seed(100 + static_cast<std::uint64_t>(k));
      const std::int64_t part = group != nullptr ? rows / world : rows;
      const std::int64_t begin = group != nullptr ? group->rank() * part : 0;
      const Tensor x = randn({rows, 1, 8, 8}, DType::f32, Device{}).rows(begin, begin + part);
      std::vector<std::int64_t> y;
      for (std::int64_t i = begin; i < begin + part; ++i) y.push_back((3 * i + k) % 5);
      optimizer.zero_grad();
      nn::Module& model = ddp ? static_cast<nn::Module&>(*ddp) : net;
      cross_entropy(model(x), Tensor::from(y, {part}, Device{})).backward();
      optimizer.step();
    }
    std::vector<float> all;
    for (const Tensor& parameter : net.parameters()) {
      const auto values = parameter.to_vector<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const auto alone = train_split({}, {}, nullptr);
  const int devices = device_count(DeviceType::cuda);
  for (const bool on_cpu : {true, false}) {
    if (!on_cpu && devices < 2) continue;
    std::vector<std::vector<float>> results(2);
    comm::run_ranks(2, [&](const comm::ProcessGroup& group) {
      const auto device = [&](int number) {
        return Device{DeviceType::cuda, (group.rank() + number) % devices};
      };
      const StreamGuard own(Stream::create(device(0))), others(Stream::create(device(1)));
      results[static_cast<std::size_t>(group.rank())] =
          train_split(on_cpu ? Device{} : device(1), device(0), &group);
    });
    CHECK(results[0] == results[1]);
    double worst = 0;
    REQUIRE(results[0].size() == alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
      worst = testing::larger(worst, std::abs(results[0][i] - alone[i]));
    }
    CAPTURE(on_cpu);
    CHECK(worst < 2e-5);
  }
}

TEST_CASE("a captured step trains as calls do, dropout too") {
  context().deterministic = true;
  const auto train = [](bool captured) {
    const Device device{DeviceType::cuda, 0};
    manual_seed(1);
    nn::BasicNet net;
    net.to(device);
    nn::AdamW optimizer(net.parameters(), {.lr = 1e-3});
    const Tensor x = Tensor::empty({2, 1, 28, 28}, DType::f32, device);
    const Tensor y = Tensor::from(std::vector<std::int64_t>{3, 7}, {2}, device);
    Graph graph(captured ? device : Device{});
    Tensor loss;
    std::vector<float> losses;
    for (int k = 0; k < 4; ++k) {
      x.copy_(full({2, 1, 28, 28}, 0.1 * (k + 1), DType::f32, device));
      graph.run([&] {
        optimizer.zero_grad();
        loss = nll_loss(net(x), y);
        loss.backward();
      });
      optimizer.step();
      losses.push_back(loss.item<float>());
    }
    CHECK(graph.captured() == captured);
    return losses;
  };
  CHECK(train(true) == train(false));
  context().deterministic = false;
}
