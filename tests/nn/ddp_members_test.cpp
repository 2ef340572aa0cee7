// SPDX-License-Identifier: Apache-2.0
// What belongs to a wrapped model may change between steps: parameters are frozen and thawed, join
// and leave, on all ranks alike, and what one rank alone does is an error by name on every rank.
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/adam.h>
#include <peal/nn/parallel/join.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

constexpr std::size_t of_mlp = 4;  // parameters

// A step of both, whose gradients are then compared.
template <class M>
void step(Twins<M>& pair, const Group& group, double value) {
  pair.model.zero_grad();
  pair.alone.zero_grad();
  loss(*pair.ddp, value).backward();
  loss(pair.alone, value).backward();
  const NamedTensors mine = pair.model.named_parameters(), theirs = pair.alone.named_parameters();
  REQUIRE(mine.size() == theirs.size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    CAPTURE(mine[i].first);
    const Tensor own = theirs[i].second.grad();
    REQUIRE(mine[i].second.grad().defined() == own.defined());
    if (!own.defined()) continue;
    const Tensor expected = own.clone();
    group.all_reduce(expected, comm::ReduceOp::avg).wait();
    CHECK(mine[i].second.grad().to_vector<float>() == expected.to_vector<float>());
  }
}

std::size_t planned(const DDP& ddp) {
  std::size_t entries = 0;
  for (const nn::Bucket& bucket : ddp.reducer().buckets()) entries += bucket.entries.size();
  return entries;
}

void set_trained(nn::Module& model, const std::vector<std::size_t>& which, bool trained) {
  const std::vector<Tensor> parameters = model.parameters();
  for (const std::size_t p : which) parameters[p].set_requires_grad(trained);
}

// What every rank fails with, once: f changes the model, and a step follows.
std::string told_to_all(int world, const std::function<void(nn::Sequential&, int rank)>& f) {
  std::mutex mutex;
  std::set<std::string> texts;
  int told = 0;
  CHECK_THROWS(ranks(world, [&](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group);
    loss(ddp, rank + 1).backward();
    f(net, rank);
    try {
      loss(ddp, rank + 1).backward();
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      texts.insert(error.what());
      ++told;
      throw;
    }
  }));
  CHECK(told == world);
  std::string all;
  for (const std::string& text : texts) all += text + '\n';
  MESSAGE(all);
  return all;
}

}  // namespace

TEST_CASE("frozen parameters leave the plan, thawed ones come back, in any order") {
  for (const auto& [find_unused, static_graph] : {std::pair(false, false), std::pair(false, true),
                                                  std::pair(true, false), std::pair(true, true)}) {
    two([&, find = find_unused, fixed = static_graph](const Group& group, int rank) {
      Twins<Mlp> pair(group,
                      {.buckets = apart, .find_unused_parameters = find, .static_graph = fixed});
      const std::vector<std::vector<std::size_t>> frozen{{}, {0}, {0, 1}, {2, 3}, {3}, {1, 2}, {}};
      for (const auto& now : frozen) {
        for (nn::Module* model :
             {static_cast<nn::Module*>(&pair.model), static_cast<nn::Module*>(&pair.alone)}) {
          set_trained(*model, {0, 1, 2, 3}, true);
          set_trained(*model, now, false);
        }
        for (int k = 0; k < 3; ++k) {  // the second learns the order again
          step(pair, group, rank + 1 + k);
          CHECK(planned(*pair.ddp) == of_mlp - now.size());
        }
        // Where steps may differ no order of arrival is learnt: the plan is of registration.
        std::vector<int> order;
        for (const nn::Bucket& bucket : pair.ddp->reducer().buckets()) {
          for (const auto& entry : bucket.entries) order.push_back(entry.parameter);
        }
        const bool registered = std::is_sorted(order.rbegin(), order.rend());
        if (find && !fixed) CHECK(registered);
        if (!(find && !fixed) && now.empty()) CHECK_FALSE(registered);
      }
    });
  }
}

TEST_CASE("a part that is frozen in other models' steps alone costs nothing") {
  two([](const Group& group, int rank) {
    Twins<Mlp> pair(group);
    for (int k = 0; k < 3; ++k) step(pair, group, rank + 1);
    const std::uint64_t before = group.sequence();
    for (int k = 0; k < 3; ++k) {
      pair.model.requires_grad_(false);
      loss(*pair.ddp, rank);  // a judge's, say
      pair.model.requires_grad_(true);
      pair.model.zero_grad();
      loss(*pair.ddp, rank + 1).backward();
    }
    CHECK(group.sequence() - before == 3);
  });
}

TEST_CASE("gradients under accumulation stay when the plan changes") {
  two([](const Group& group, int rank) {
    Twins<Mlp> pair(group, {.buckets = apart});
    step(pair, group, rank + 1);
    pair.model.zero_grad();
    pair.alone.zero_grad();
    {
      const auto guard = pair.ddp->no_sync();
      loss(*pair.ddp, rank + 2).backward();
      loss(pair.alone, rank + 2).backward();
    }
    set_trained(pair.model, {1}, false);
    set_trained(pair.alone, {1}, false);
    loss(*pair.ddp, rank + 3).backward();
    loss(pair.alone, rank + 3).backward();
    const auto mine = pair.model.parameters(), own = pair.alone.parameters();
    // What was frozen is no part of the step: it keeps what the rank has gathered.
    CHECK(mine[1].grad().to_vector<float>() == own[1].grad().to_vector<float>());
    for (const std::size_t p : {0, 2, 3}) {
      const Tensor expected = own[p].grad().clone();
      group.all_reduce(expected, comm::ReduceOp::avg).wait();
      CHECK(mine[p].grad().to_vector<float>() == expected.to_vector<float>());
    }
  });
}

TEST_CASE("the optimizer keeps its state, and trains as in one process") {
  const auto train = [](const Group* group, int rank) {
    Mlp net;
    make_whole(net);
    std::unique_ptr<DDP> ddp;
    if (group != nullptr) ddp = std::make_unique<DDP>(net, *group);
    nn::AdamW optimizer(net.named_parameters(), {.lr = 0.125});
    for (int k = 0; k < 12; ++k) {
      if (k % 3 == 0) set_trained(net, {0, 1}, k % 2 == 0);
      optimizer.zero_grad();
      nn::Module& model = ddp ? static_cast<nn::Module&>(*ddp) : net;
      loss(model, k + 1).backward();
      optimizer.step();
    }
    static_cast<void>(rank);
    std::string bytes;
    for (const auto& [name, tensor] : optimizer.state_dict()) {
      bytes += name + std::string(static_cast<const char*>(tensor.raw()), tensor.view().bytes());
    }
    for (const Tensor& p : net.parameters()) {
      bytes += std::string(static_cast<const char*>(p.raw()), p.view().bytes());
    }
    return bytes;
  };
  manual_seed(1);
  const std::string alone = train(nullptr, 0);
  two([&](const Group& group, int rank) { CHECK(train(&group, rank) == alone); });
}

TEST_CASE("parameters and buffers join, from rank 0's values, and leave") {
  struct Growing : nn::Module {
    nn::Linear fc = add("fc", nn::Linear(3, 2));
    std::shared_ptr<nn::Linear> extra = std::make_shared<nn::Linear>(3, 2);
    std::shared_ptr<bool> grown = std::make_shared<bool>(false);
    Tensor forward(const Tensor& x) override { return *grown ? fc(x) + (*extra)(x) : fc(x); }
    void grow(float value) {
      *extra = add("extra", nn::Linear(3, 2));
      fill_(extra->weight.detach(), value);
      fill_(extra->bias.detach(), value);
      fill_(add_buffer("seen", Tensor::zeros({1})), value);
      *grown = true;
    }
  };
  for (const bool find_unused : {false, true}) {
    two([&](const Group& group, int rank) {
      Twins<Growing> pair(group, {.buckets = apart, .find_unused_parameters = find_unused});
      step(pair, group, rank + 1);
      pair.model.grow(static_cast<float>(3 + rank));
      pair.alone.grow(3);
      for (int k = 0; k < 3; ++k) {
        // The first step begins with what the rank has; after it all have rank 0's.
        if (k > 0) step(pair, group, rank + 1);
        if (k == 0) loss(*pair.ddp, rank + 1).backward();
        CHECK(planned(*pair.ddp) == 4);
        CHECK(pair.model.extra->weight.to_vector<float>() == std::vector<float>(6, 3));
        CHECK(pair.model.named_buffers().back().second.to_vector<float>()[0] == 3);
      }
      const std::vector<Tensor> before = pair.model.parameters();
      pair.model.replace_child("extra", nn::Linear(3, 2));
      pair.alone.replace_child("extra", nn::Linear(3, 2));
      pair.alone.load_state_dict(pair.model.state_dict());
      CHECK_FALSE(before[2].grad_slot().has_final_hook() == false);
      step(pair, group, rank + 1);
      CHECK_FALSE(before[2].grad_slot().has_final_hook());  // it may be another wrapper's now
    });
  }
}

TEST_CASE("a model called by a function of its own takes new parameters as well") {
  struct Own : nn::Module {
    nn::Linear a = add("a", nn::Linear(3, 3)), b = add("b", nn::Linear(3, 2));
    Tensor run(const Tensor& x) { return b(a(x)); }
  };
  two([](const Group& group, int rank) {
    Own model, alone;
    for (Own* each : {&model, &alone}) {
      make_whole(*each);
      each->b.weight.set_requires_grad(false);
      each->b.bias.set_requires_grad(false);
    }
    DDP ddp(model, group);
    const auto go = [&](Own& each) {
      const Tensor y = each.run(full({2, 3}, rank + 1.));
      sum(y * y).backward();
    };
    for (int k = 0; k < 3; ++k) {
      if (k == 1) {  // b's gradients come before those that the wrapper knows of
        for (Own* each : {&model, &alone}) each->b.requires_grad_(true);
      }
      model.zero_grad();
      alone.zero_grad();
      go(model);
      go(alone);
      const auto mine = model.parameters(), own = alone.parameters();
      for (std::size_t p = 0; p < (k == 0 ? 2U : 4U); ++p) {
        const Tensor expected = own[p].grad().clone();
        group.all_reduce(expected, comm::ReduceOp::avg).wait();
        CHECK(mine[p].grad().to_vector<float>() == expected.to_vector<float>());
      }
    }
  });
}

TEST_CASE("ranks without a batch take part in a change of the plan") {
  two([](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group);
    nn::Join join(ddp);
    for (int turn = 0; join.next(rank == 1 || turn < 1); ++turn) {
      if (turn == 2) set_trained(net, {0}, false);
      net.zero_grad();
      if (join.active()) {
        loss(ddp, rank + 1).backward();
      } else {
        CHECK(join.follow());
      }
      if (turn == 2) break;
      for (const Tensor& p : net.parameters()) CHECK(same_everywhere(p.grad(), group));
    }
    CHECK(planned(ddp) == 3);
  });
}

TEST_CASE("what one rank alone freezes, thaws or adds is named on every rank") {
  const std::string frozen = told_to_all(2, [](nn::Sequential& net, int rank) {
    if (rank == 1) set_trained(net, {2}, false);
  });
  CHECK(frozen.find("3.weight is frozen now") != std::string::npos);
  const std::string joined = told_to_all(3, [](nn::Sequential& net, int rank) {
    if (rank == 0) net.add_parameter("extra", ones({2}));
  });
  CHECK(joined.find("extra has joined") != std::string::npos);
}

TEST_CASE("ranks that change other things are told both") {
  const std::string text = told_to_all(2, [](nn::Sequential& net, int rank) {
    set_trained(net, {static_cast<std::size_t>(rank)}, false);
  });
  CHECK(text.find("'1.weight is frozen now' on rank 0 and '1.bias is frozen now' on rank 1") !=
        std::string::npos);
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
