// SPDX-License-Identifier: Apache-2.0
// What belongs to a wrapped model: parameters that join it later, or wake up, are an error by name
// on every rank; what is replaced or outlived does no harm.
#include <peal/nn/layers/layers.h>

#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

TEST_CASE("a parameter that joins after wrapping is named on every rank") {
  std::atomic<int> told{0};
  CHECK_THROWS(two([&](const Group& group, int rank) {
    try {  // a rank may still be in the wrapper's start when the other has failed
      nn::Sequential net = nn::mlp({3, 4, 2});
      DDP ddp(net, group);
      net.add("extra", nn::Linear(2, 2));
      loss(ddp, rank + 1).backward();
    } catch (const Error& error) {
      if (std::string(error.what()).find("extra.weight, extra.bias") != std::string::npos) ++told;
      throw;
    }
  }));
  CHECK(told == 2);
}

TEST_CASE("in a part of the world a rank is named by its number in the world") {
  std::atomic<int> told{0};
  CHECK_THROWS(ranks(3, [&](const Group& world, int rank) {
    const Group group = world.split(rank > 0 ? 0 : -1);
    if (rank == 0) return;
    try {  // the other rank may still be in the wrapper's start
      nn::Sequential net = nn::mlp({3, 4, 2});
      DDP ddp(net, group);
      if (rank == 2) net.add("extra", nn::Linear(2, 2));
      loss(ddp, rank).backward();
    } catch (const Error& error) {
      if (std::string(error.what()).find("[ddp] rank 2: extra.weight") != std::string::npos) ++told;
      throw;
    }
  }));
  CHECK(told == 2);
}

TEST_CASE("a part that takes the place of a wrapped one is named") {
  const std::string message = failure([](const Group& group, int rank) {
    nn::Sequential net = nn::mlp({3, 4, 2});
    DDP ddp(net, group);
    net.replace_child("1", nn::Linear(3, 4));
    loss(ddp, rank + 1).backward();
  });
  CAPTURE(message);
  CHECK(message.find("1.weight, 1.bias") != std::string::npos);
  CHECK(message.find("wrap the model again") != std::string::npos);
}

TEST_CASE("what was frozen, converted and thawed is not averaged, and said so") {
  const std::string message = failure([](const Group& group, int rank) {
    nn::Sequential net = nn::mlp({3, 4, 2});
    const std::string last = net.named_children().back().first;
    net.requires_grad_(last, false);
    DDP ddp(net, group);
    nn::Module child = net.child(last);
    child.to(DType::f64);
    child.to(DType::f32);
    group.all_gather_object("all are here");
    child.requires_grad_(true);
    loss(ddp, rank + 1).backward();
  });
  CAPTURE(message);
  CHECK(message.find("was frozen when the model was wrapped") != std::string::npos);
}

TEST_CASE("a buffer that joins or takes another's place is named, where buffers are made equal") {
  struct Normed : nn::Module {
    nn::Linear fc = add("fc", nn::Linear(3, 2));
    nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(2, {.affine = false}));
    Tensor forward(const Tensor& x) override { return norm(fc(x)); }
  };
  const auto train = [](const Group& group, int rank, bool broadcast_buffers) {
    Normed net;
    DDP ddp(net, group, {.broadcast_buffers = broadcast_buffers});
    net.replace_child("norm", nn::BatchNorm1d(2, {.affine = false}));
    net.add_buffer("extra", ones({1}));
    loss(ddp, rank + 1).backward();
    CHECK(!broadcast_buffers);
  };
  two([&](const Group& group, int rank) { train(group, rank, false); });
  const std::string message =
      failure([&](const Group& group, int rank) { train(group, rank, true); });
  CAPTURE(message);
  CHECK(message.find("extra, norm.running_mean, norm.running_var, norm.num_batches_tracked") !=
        std::string::npos);
  CHECK(message.find("wrap the model again") != std::string::npos);
}

TEST_CASE("a wrapper of a part stays with it when another takes its place") {
  two([](const Group& group, int rank) {
    struct Net : nn::Module {
      nn::Linear head = add("head", nn::Linear(3, 2));
    } net;
    nn::Linear other(3, 2);
    int calls = 0;
    other.add_hook([&](nn::Module&, const Tensor&, const Tensor&) {
      ++calls;
      return Tensor();
    });
    {
      DDP ddp(net.head, group);
      net.replace_child("head", other);
      loss(ddp, rank + 1).backward();
      CHECK(calls == 0);
    }
    net.head(ones({1, 3}));  // the wrapper has taken off hooks of its own alone
    CHECK(calls == 1);
  });
}

TEST_CASE("no_sync may outlive the wrapper, whose gradients stay at home then") {
  two([](const Group& group, int rank) {
    Twins<Mlp> pair(group);
    const auto guard = pair.ddp->no_sync();
    pair.ddp.reset();
    loss(pair.model, rank + 1).backward();
    loss(pair.alone, rank + 1).backward();
    const std::vector<Tensor> mine = pair.model.parameters(), own = pair.alone.parameters();
    REQUIRE(mine.size() == own.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      CHECK(mine[i].grad().to_vector<float>() == own[i].grad().to_vector<float>());
    }
  });
}

TEST_CASE("a rank that is in no group is told") {
  nn::Sequential net = nn::mlp({3, 4, 2});
  CHECK_THROWS_WITH(DDP(net, {}), doctest::Contains("expected a process group, got none"));
}
