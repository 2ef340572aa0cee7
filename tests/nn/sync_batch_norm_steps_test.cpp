// SPDX-License-Identifier: Apache-2.0
// Models with synchronised batch norm: what conversion keeps, and that they train on several ranks
// as on one, whatever each rank's share of a batch is.
#include <peal/nn/layers/layers.h>
#include <peal/nn/models/resnet.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/sync_batch_norm.h>
#include <peal/tests/difference.h>
#include <peal/tests/errors.h>

#include "ddp_ranks.h"

#include <array>
#include <cmath>

using namespace peal;
using namespace peal::testing;

namespace {

struct Net : nn::Module {
  nn::Conv2d conv = add("conv", nn::Conv2d(2, 4, 3, {.padding = 1}));
  nn::BatchNorm2d first = add("first", nn::BatchNorm2d(4));
  nn::Sequential rest =
      add("rest", nn::Sequential(nn::Flatten(), nn::Linear(4 * 9, 6), nn::BatchNorm1d(6),
                                 nn::ReLU(), nn::Linear(6, 3)));
  Tensor forward(const Tensor& x) override { return rest(relu(first(conv(x)))); }
};

// [begin, end) of a batch of 12 samples, of each rank of 3; in turn even, uneven and with a rank
// that has none.
std::array<std::int64_t, 2> share(int rank, int step) {
  constexpr std::int64_t bounds[3][4] = {{0, 4, 8, 12}, {0, 1, 9, 12}, {0, 7, 7, 12}};
  return {bounds[step % 3][rank], bounds[step % 3][rank + 1]};
}

}  // namespace

TEST_CASE("under DDP three ranks train as one on the whole batch") {
  constexpr int world = 3, steps = 6;
  ranks(world, [](const Group& group, int rank) {
    Net alone, net;
    for (nn::Module* const model :
         {static_cast<nn::Module*>(&alone), static_cast<nn::Module*>(&net)})
      model->to(DType::f64);
    net.load_state_dict(alone.state_dict());
    DDP ddp(nn::convert_sync_batchnorm(net, group), group);
    nn::SGD one(alone.parameters(), {.lr = 0.05, .momentum = 0.9});
    nn::SGD all(ddp.parameters(), {.lr = 0.05, .momentum = 0.9});
    for (int step = 0; step < steps; ++step) {
      const Tensor x = randn({12, 2, 3, 3}, DType::f64), target = randn({12, 3}, DType::f64);
      const auto [begin, end] = share(rank, step);
      const auto loss_of = [](const Tensor& y, const Tensor& t) {
        return sum((y - t) * (y - t)) / 12;
      };
      one.zero_grad();
      loss_of(alone(x), target).backward();
      one.step();
      all.zero_grad();
      // DDP averages: a sum over the ranks is that times their number.
      (loss_of(ddp(x.rows(begin, end)), target.rows(begin, end)) * world).backward();
      all.step();
    }
    const NamedTensors expected = alone.state_dict(), got = net.state_dict();
    REQUIRE(expected.size() == got.size());
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      CAPTURE(got[i].first);
      CHECK(got[i].first == expected[i].first);
      CHECK(same_everywhere(got[i].second, group));
      const Tensor a = cast(got[i].second, DType::f64), b = cast(expected[i].second, DType::f64);
      for (std::int64_t k = 0; k < a.numel(); ++k) {
        worst = larger(worst, std::abs(a.data<double>()[k] - b.data<double>()[k]));
      }
    }
    CHECK(worst < 1e-12);
    ddp.eval();
    alone.eval();
    const Tensor x = randn({2, 2, 3, 3}, DType::f64);
    CHECK(max(abs(ddp(x) - alone(x))).item<double>() < 1e-11);
  });
}

TEST_CASE(
    "buffers are equal on all ranks where DDP leaves them alone, and accumulation keeps step") {
  two([](const Group& group, int rank) {
    Net net;
    DDP ddp(nn::convert_sync_batchnorm(net, group), group,
            {.buckets = apart, .broadcast_buffers = false});
    const auto x = [&] { return randn({3 + rank, 2, 3, 3}) + rank; };
    for (int step = 0; step < 2; ++step) {
      {
        const auto guard = ddp.no_sync();
        sum(ddp(x())).backward();
      }
      sum(ddp(x())).backward();
    }
    for (const auto& [name, buffer] : net.named_buffers()) {
      CAPTURE(name);
      CHECK(same_everywhere(buffer, group));
    }
    CHECK(net.first.num_batches_tracked.item<std::int64_t>() == 4);
  });
}

TEST_CASE("ranks that run out of batches take part with nothing, and all train as one") {
  ranks(3, [](const Group& group, int rank) {
    Net alone, net;
    alone.to(DType::f64);
    net.to(DType::f64);
    net.load_state_dict(alone.state_dict());
    DDP ddp(nn::convert_sync_batchnorm(net, group), group);
    nn::SGD one(alone.parameters(), {.lr = 0.05, .momentum = 0.9});
    nn::SGD all(ddp.parameters(), {.lr = 0.05, .momentum = 0.9});
    const auto loss_of = [](const Tensor& y, const Tensor& t) { return sum((y - t) * (y - t)); };
    nn::Join join(ddp);
    int step = 0;
    for (; join.next(step < 2 + rank); ++step) {
      const Tensor x = randn({12, 2, 3, 3}, DType::f64), target = randn({12, 3}, DType::f64);
      const std::int64_t first = step < 2 ? 0 : (step - 1) * 4;  // rank r has 2 + r batches
      one.zero_grad();
      (loss_of(alone(x.rows(first, 12)), target.rows(first, 12)) / 3.0).backward();
      one.step();
      all.zero_grad();
      if (join.active()) {
        const std::int64_t begin = rank * 4;
        loss_of(ddp(x.rows(begin, begin + 4)), target.rows(begin, begin + 4)).backward();
      } else {
        join.follow();
      }
      all.step();
    }
    CHECK(step == 4);
    const NamedTensors expected = alone.state_dict(), got = net.state_dict();
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      CAPTURE(got[i].first);
      CHECK(same_everywhere(got[i].second, group));
      const Tensor a = cast(got[i].second, DType::f64), b = cast(expected[i].second, DType::f64);
      for (std::int64_t k = 0; k < a.numel(); ++k) {
        worst = larger(worst, std::abs(a.data<double>()[k] - b.data<double>()[k]));
      }
    }
    CHECK(worst < 1e-12);
  });
}

TEST_CASE("a batch without samples goes through a model, in every type") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    two([&](const Group& group, int rank) {
      Net net;
      net.to(dtype);
      DDP ddp(nn::convert_sync_batchnorm(net, group), group);
      const Tensor x = cast(randn({rank * 4, 2, 3, 3}), dtype).set_requires_grad();
      sum(ddp(x)).backward();
      CHECK(x.grad().shape() == x.shape());
      for (const auto& [name, parameter] : net.named_parameters()) {
        CAPTURE(name);
        CHECK(same_everywhere(parameter.grad(), group));
        CHECK(std::isfinite(sum(cast(parameter.grad(), DType::f64)).item<double>()));
      }
    });
  }
}

TEST_CASE("conversion keeps keys, tensors, modes and handles") {
  two([](const Group& group, int) {
    nn::ResNet18 net({.num_classes = 10, .small_images = true});
    net.layer2.eval();
    net.bn1.bias.set_requires_grad(false);
    const NamedTensors before = net.state_dict();
    std::size_t norms = 0, modules = 0;
    for (auto& [name, module] : net.named_modules())
      norms += module.as<nn::BatchNorm2d>() != nullptr;
    nn::convert_sync_batchnorm(net, group);
    for (auto& [name, module] : net.named_modules()) {
      CHECK(module.as<nn::BatchNorm2d>() == nullptr);
      modules += module.as<nn::SyncBatchNorm>() != nullptr;
    }
    CHECK(norms == 20);
    CHECK(modules == norms);
    const NamedTensors after = net.state_dict();
    REQUIRE(after.size() == before.size());
    for (std::size_t i = 0; i < after.size(); ++i) {
      CHECK(after[i].first == before[i].first);
      CHECK(after[i].second.raw() == before[i].second.raw());
    }
    CHECK(!net.bn1.bias.requires_grad());
    CHECK(net.bn1.weight.requires_grad());
    CHECK(!net.child("layer2.0.bn1").training());
    CHECK(net.child("layer1.0.bn1").training());
    const std::uint64_t sequence = group.sequence();
    net(randn({2, 3, 8, 8}));
    CHECK(group.sequence() == sequence + 15);  // layer2 has five, which evaluate
    nn::convert_sync_batchnorm(net, group);    // nothing is left to convert
    CHECK(net.child("bn1").as<nn::SyncBatchNorm>() != nullptr);
  });
}

TEST_CASE("one that stands in two places is converted once, and a norm itself becomes one") {
  struct Twice : nn::Module {
    nn::BatchNorm1d a = add("a", nn::BatchNorm1d(2));
    nn::Module b = add("b", nn::Module(a));
  };
  two([](const Group& group, int) {
    Twice net;
    nn::convert_sync_batchnorm(net, group);
    CHECK(net.child("a").same_as(net.child("b")));
    CHECK(net.child("b").as<nn::SyncBatchNorm>() != nullptr);
    CHECK(net.named_parameters().size() == 2);
    nn::Module norm = nn::convert_sync_batchnorm(nn::BatchNorm3d(2), group);
    CHECK(norm.as<nn::SyncBatchNorm>() != nullptr);
    nn::Module bare = nn::convert_sync_batchnorm(nn::BatchNorm2d(2, {.bias = false}), group);
    REQUIRE(bare.named_parameters().size() == 1);
    CHECK(bare.named_parameters()[0].first == "weight");
    CHECK(bare.repr().find("bias=False") != std::string::npos);
  });
}

TEST_CASE("a model that is wrapped can be converted") {
  two([](const Group& group, int rank) {
    Net net;
    DDP ddp(net, group);
    nn::convert_sync_batchnorm(net, group);
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      sum(ddp(randn({2 + rank, 2, 3, 3}))).backward();
    }
    CHECK(same_everywhere(net.first.weight.grad(), group));
  });
}

TEST_CASE("what conversion refuses leaves the model as it was") {
  struct Own : nn::BatchNorm1d {
    Own() : nn::BatchNorm1d(2) {}
    Tensor forward(const Tensor& x) override { return nn::BatchNorm1d::forward(x) * 2; }
  };
  struct Model : nn::Module {
    nn::BatchNorm1d plain = add("plain", nn::BatchNorm1d(2));
    nn::Sequential deep = add("deep", nn::Sequential(Own()));
  };
  Model net;
  check_has(error_of([&] { nn::convert_sync_batchnorm(net, Group::alone()); }),
            "convert_sync_batchnorm: deep.0 is a ");
  CHECK(net.child("plain").as<nn::BatchNorm1d>() != nullptr);
  Net hooked;
  hooked.first.add_hook([](nn::Module&, const Tensor&, const Tensor& y) { return y; });
  check_has(error_of([&] { nn::convert_sync_batchnorm(hooked, Group::alone()); }),
            "convert_sync_batchnorm: first has hooks");
  CHECK(hooked.child("rest.2").as<nn::BatchNorm1d>() != nullptr);
}
