// SPDX-License-Identifier: Apache-2.0
// The plan that the first step's order makes: rank 0's order, on all ranks, once.
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/join.h>

#include <utility>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Of parameters by numbers: whichever comes first in backward is used last.
struct Fan : nn::Module {
  std::vector<Tensor> weights;
  std::shared_ptr<std::vector<int>> order = std::make_shared<std::vector<int>>();
  Fan() {
    for (int i = 0; i < 4; ++i) {
      weights.push_back(add_parameter(concat("w", i), full({2}, i + 1.)));
      order->push_back(i);
    }
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const int i : *order) y = y * weights[static_cast<std::size_t>(i)];
    return y;
  }
};

std::vector<int> plan_of(const DDP& ddp) {
  std::vector<int> numbers;
  for (const nn::Bucket& bucket : ddp.reducer().buckets()) {
    for (const auto& entry : bucket.entries) numbers.push_back(entry.parameter);
  }
  return numbers;
}

using Order = std::vector<int>;

void step(Twins<Fan>& pair, const Group& group, const Order& order, double value) {
  *pair.model.order = order;
  *pair.alone.order = order;
  pair.model.zero_grad();
  pair.alone.zero_grad();
  sum((*pair.ddp)(full({2}, value))).backward();
  sum(pair.alone(full({2}, value))).backward();
  check_averaged(pair.model, pair.alone, group);
}

}  // namespace

TEST_CASE("the second step has the order of the first, which is rank 0's, and no later one's") {
  for (const bool static_graph : {false, true}) {
    ranks(3, [&](const Group& group, int rank) {
      Twins<Fan> pair(group, {.buckets = apart, .static_graph = static_graph});
      CHECK(plan_of(*pair.ddp) == Order{3, 2, 1, 0});
      step(pair, group, rank == 0 ? Order{2, 0, 3, 1} : Order{0, 1, 2, 3}, 1);
      CHECK(plan_of(*pair.ddp) == Order{3, 2, 1, 0});
      for (int k = 0; k < 3; ++k) {
        const std::uint64_t before = group.sequence();
        *pair.model.order = {3, 2, 1, 0};
        pair.model.zero_grad();
        sum((*pair.ddp)(full({2}, 3.))).backward();
        CHECK(plan_of(*pair.ddp) == Order{1, 3, 0, 2});
        // The order is sent once, and ranks meet while they exchange buckets.
        CHECK(group.sequence() - before == 4 + (k == 0 ? 2 : 0));
      }
      step(pair, group, {3, 2, 1, 0}, 3);
    });
  }
}

TEST_CASE("an order that is given stays, and so does a plan whose steps may differ") {
  two([](const Group& group, int rank) {
    Twins<Fan> given(group, {.buckets = apart, .order = {"w0", "w3"}});
    Twins<Fan> unused(group, {.buckets = apart, .find_unused_parameters = true});
    for (int k = 0; k < 3; ++k) {
      step(given, group, {1, 0, 2, 3}, rank + 1);
      step(unused, group, {1, 0, 2, 3}, rank + 1);
    }
    CHECK(plan_of(*given.ddp) == Order{0, 3, 2, 1});
    CHECK(plan_of(*unused.ddp) == Order{3, 2, 1, 0});
  });
}

TEST_CASE("gradients that accumulate over the second step's beginning move along") {
  two([](const Group& group, int rank) {
    Twins<Fan> pair(group, {.buckets = {.first_bytes = 100, .bytes = 100}});
    *pair.model.order = *pair.alone.order = {1, 3, 0, 2};
    for (int k = 0; k < 3; ++k) {  // into the averages of the step before, as nobody clears them
      const std::vector<Tensor> mine = pair.model.parameters(), own = pair.alone.parameters();
      for (std::size_t p = 0; p < own.size(); ++p) {
        if (mine[p].grad().defined()) own[p].grad().copy_(mine[p].grad());
      }
      sum((*pair.ddp)(full({2}, rank + 1.))).backward();
      sum(pair.alone(full({2}, rank + 1.))).backward();
      check_averaged(pair.model, pair.alone, group);
    }
    CHECK(plan_of(*pair.ddp) == Order{2, 0, 3, 1});
  });
}

TEST_CASE("where rank 0 has no batch in the first step the order waits until it has one") {
  two([](const Group& group, int rank) {
    Twins<Fan> pair(group, {.buckets = apart});
    *pair.model.order = {1, 3, 0, 2};
    nn::Join join(*pair.ddp);
    const auto turn = [&](bool mine) {
      CHECK(join.next(mine));
      pair.model.zero_grad();
      if (join.active()) {
        sum((*pair.ddp)(full({2}, 1.))).backward();
      } else {
        CHECK(join.follow());
      }
    };
    turn(rank == 1);
    turn(rank == 1);
    CHECK(plan_of(*pair.ddp) == Order{3, 2, 1, 0});
    CHECK_FALSE(join.next(false));
    turn(true);
    turn(true);
    CHECK(plan_of(*pair.ddp) == Order{2, 0, 3, 1});
  });
}

TEST_CASE("mixed kinds of accumulation are refused, and the wrapper goes on") {
  two([](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group);
    ddp.backward(loss(ddp, rank + 1), 2);
    net.zero_grad();
    {
      const auto guard = ddp.no_sync();
      ddp.backward(loss(ddp, rank + 1), 2);
    }
    CHECK_THROWS_WITH(loss(ddp, rank + 1).backward(), doctest::Contains("each time"));
    net.zero_grad();
    ddp.backward(loss(ddp, rank + 1), 2);
    for (const Tensor& p : net.parameters()) CHECK(same_everywhere(p.grad(), group));
  });
}

TEST_CASE("a plan's order is taken up by another run, and is the same on all ranks") {
  ranks(3, [](const Group& group, int rank) {
    const auto names = [&] {
      Mlp net;
      DDP ddp(net, group, {.buckets = apart});
      CHECK(ddp.order().empty());
      for (int k = 0; k < 2; ++k) {
        ddp.zero_grad();
        loss(ddp, rank + 1).backward();
      }
      return std::pair(ddp.order(), ddp.reducer().buckets());
    }();
    REQUIRE(names.first.size() == 4);
    Mlp net;
    DDP ddp(net, group, {.buckets = apart});
    ddp.set_order({});  // of a run that had none yet
    CHECK(ddp.order().empty());
    CHECK(ddp.reducer().buckets() != names.second);
    CHECK_THROWS_WITH(ddp.set_order({"nobody"}), doctest::Contains("order has nobody"));
    auto misspelt = names.first;
    if (rank == 1) misspelt[0] = "nobody";
    CHECK_THROWS_WITH(ddp.set_order(misspelt), doctest::Contains("order has nobody"));
    auto other = names.first;
    if (rank == 1) std::swap(other[0], other[1]);
    CHECK_THROWS_WITH(ddp.set_order(other), doctest::Contains("give the same order"));
    ddp.set_order(names.first);
    for (int k = 0; k < 3; ++k) {
      CHECK(ddp.reducer().buckets() == names.second);
      CHECK(ddp.order() == names.first);
      ddp.zero_grad();
      loss(ddp, rank + 1).backward();
      for (const Tensor& p : net.parameters()) CHECK(same_everywhere(p.grad(), group));
    }
  });
}
