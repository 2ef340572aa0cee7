// SPDX-License-Identifier: Apache-2.0
// ShardedDDP: gradients are averaged at their owners and gone elsewhere; accumulation, unused and
// missing ones, norms, changes of the model; and what does not go with it is an error.
#include <peal/nn/parallel/join.h>
#include <peal/tests/errors.h>

#include <cmath>
#include <numeric>
#include <optional>

#include "zero_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

using Sharded = nn::ShardedDDP;

// Four parameters with whole numbers, an optimizer of these, and their like without.
template <class M = Mlp>
struct Shared {
  explicit Shared(
      const Group& group, const nn::DDPOptions& options = {.buckets = apart},
      const std::function<void(M&)>& set = [](M&) {}) {
    set(model);
    make_whole(model);
    make_whole(alone);
    optimizer.emplace(group, model.named_parameters(), nn::SGDOptions{.lr = 0.25});
    ddp.emplace(model, *optimizer, options);
  }
  int owner(std::size_t p) const { return optimizer->placement().owners[p]; }
  M model, alone;
  std::optional<Zero<nn::SGD>> optimizer;
  std::optional<Sharded> ddp;
};

// Owners have the average of what ranks have in `alone`, and others have nothing.
template <class M>
void check_at_owners(const Shared<M>& shared, const Group& group) {
  const NamedTensors mine = shared.model.named_parameters();
  const NamedTensors theirs = shared.alone.named_parameters();
  for (std::size_t p = 0; p < mine.size(); ++p) {
    CAPTURE(mine[p].first);
    const Tensor local = theirs[p].second.grad();
    const Tensor expected = local.defined() ? local.clone() : zeros_like(theirs[p].second);
    group.all_reduce(expected.detach(), comm::ReduceOp::avg).wait();
    const Tensor grad = mine[p].second.grad();
    CHECK(grad.defined() == (shared.owner(p) == group.rank()));
    if (grad.defined()) CHECK(grad.to_vector<float>() == expected.to_vector<float>());
  }
}

// Of three parameters, of which `extra` may be left out.
struct Branching : nn::Module {
  nn::Linear in = add("in", nn::Linear(3, 2));
  nn::Linear extra = add("extra", nn::Linear(2, 2));
  bool takes_extra = true;
  Tensor forward(const Tensor& x) override {
    const Tensor y = in(x);
    return takes_extra ? y + extra(y) : y;
  }
};

}  // namespace

TEST_CASE("gradients are averaged at their owners, and gone on other ranks") {
  for (const int world : {2, 4}) {
    for (const nn::BucketCaps& caps : {apart, nn::BucketCaps{}}) {
      ranks(world, [&](const Group& group, int rank) {
        Shared shared(group, {.buckets = caps});
        for (int step = 0; step < 3; ++step) {
          shared.optimizer->zero_grad();
          shared.alone.zero_grad();
          loss(*shared.ddp, rank + step).backward();
          loss(shared.alone, rank + step).backward();
          check_at_owners(shared, group);
        }
      });
    }
  }
}

TEST_CASE("together the ranks have each gradient once") {
  std::vector<std::int64_t> elements(3);
  std::int64_t whole = 0;
  ranks(3, [&](const Group& group, int rank) {
    Shared shared(group);
    loss(*shared.ddp, 1).backward();
    std::int64_t here = 0;
    for (const Tensor& p : shared.model.parameters()) {
      if (p.grad().defined()) here += p.grad().numel();
    }
    elements[static_cast<std::size_t>(rank)] = here;
    CHECK(here == shared.optimizer->placement().loads()[static_cast<std::size_t>(rank)]);
    if (rank != 0) return;
    for (const Tensor& p : shared.model.parameters()) whole += p.numel();
  });
  CHECK(std::accumulate(elements.begin(), elements.end(), std::int64_t{0}) == whole);
}

TEST_CASE("backwards under no_sync() add up to those of one larger batch") {
  for (const nn::BucketCaps& caps : {apart, nn::BucketCaps{}}) {
    two([&](const Group& group, int rank) {
      Shared shared(group, {.buckets = caps});
      for (int step = 0; step < 3; ++step) {
        shared.optimizer->zero_grad();
        shared.alone.zero_grad();
        for (int micro = 0; micro < 4; ++micro) {
          if (micro < 3) {
            const auto guard = shared.ddp->no_sync();
            loss(*shared.ddp, rank + micro).backward();
          } else {
            loss(*shared.ddp, rank + micro).backward();
          }
          loss(shared.alone, rank + micro).backward();
        }
        check_at_owners(shared, group);
      }
    });
  }
}

TEST_CASE("what is added to the gradient of an earlier step is an error by name") {
  const std::string error = failure([](const Group& group, int rank) {
    Shared shared(group);
    loss(*shared.ddp, rank).backward();
    loss(*shared.ddp, rank).backward();
  });
  check_has(error, "still has the gradient of an earlier step");
  check_has(error, "call zero_grad() before");
  // Also where only a backward that did not communicate has added to it.
  const std::string before = failure([](const Group& group, int rank) {
    Shared shared(group);
    loss(*shared.ddp, rank).backward();
    {
      const auto guard = shared.ddp->no_sync();
      loss(*shared.ddp, rank).backward();
    }
    loss(*shared.ddp, rank).backward();
  });
  check_has(before, "still has the gradient of an earlier step");
}

TEST_CASE("parameters that are unused on some ranks, or on all") {
  two([](const Group& group, int rank) {
    Shared<Branching> shared(group, {.buckets = apart, .find_unused_parameters = true});
    for (int step = 0; step < 4; ++step) {
      const bool some = step % 2 == 0, mine = some && rank == 1;
      shared.model.takes_extra = shared.alone.takes_extra = mine;
      shared.optimizer->zero_grad();
      shared.alone.zero_grad();
      // Branching is a handle: the wrapper calls a copy of its own, so the switch goes by it.
      const Tensor x = full({2, 3}, rank + 1.0);
      const auto through = [&](Branching& net) { return net.forward(x); };
      const Tensor y = shared.ddp->call([&](const Tensor&) { return through(shared.model); }, x);
      sum(y * y).backward();
      const Tensor z = through(shared.alone);
      sum(z * z).backward();
      if (some) {
        check_at_owners(shared, group);
      } else {
        for (const Tensor& p : shared.model.extra.parameters()) CHECK(!p.grad().defined());
      }
    }
  });
}

TEST_CASE("a gradient that is missing is the same error as DDP's") {
  const std::string error = failure([](const Group& group, int rank) {
    Shared<Branching> shared(group);
    const Tensor x = full({2, 3}, 1.0);
    shared.model.takes_extra = rank == 0;
    sum(shared.ddp->call([&](const Tensor& in) { return shared.model.forward(in); }, x)).backward();
  });
  check_has(error, "extra.weight");
  check_has(error, "find_unused_parameters");
}

TEST_CASE("a norm over the ranks' gradients counts each once") {
  for (const double p : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
    ranks(4, [&](const Group& group, int) {
      // Two gradients of 1 for each rank, and one that all have.
      const NamedTensors list = leaves(std::vector<Shape>(9, Shape{1}));
      struct Net : nn::Module {
        explicit Net(const NamedTensors& named) {
          for (const auto& [name, tensor] : named) all.push_back(add_parameter(name, tensor));
        }
        std::vector<Tensor> all;
        Tensor forward(const Tensor& x) override {
          Tensor y = x;
          for (const Tensor& each : all) y = y + each;
          return y;
        }
      } net(list);
      const NamedTensors named = net.named_parameters();
      Zero<nn::SGD> optimizer(group, NamedTensors(named.begin(), named.begin() + 8),
                              nn::SGDOptions{.lr = 1});
      Sharded ddp(net, optimizer);
      sum(ddp(Tensor::zeros({1}))).backward();
      const double norm = ddp.clip_grad_norm_(1.0, p).item<double>();
      CHECK(norm == (p == 2 ? 3 : p == 1 ? 9 : 1));
      const float clipped = static_cast<float>(std::min(1.0, 1 / (norm + 1e-6)));
      int there = 0;
      for (const auto& [name, tensor] : named) {
        if (!tensor.grad().defined()) continue;
        ++there;
        CHECK(tensor.grad().item<float>() == doctest::Approx(clipped));
      }
      CHECK(there == 3);
    });
  }
}

TEST_CASE("an infinite gradient of one owner leaves the step out on all ranks") {
  two([](const Group& group, int) {
    Shared shared(group);
    nn::GradScaler scaler({}, group);
    const auto before = values_of(shared.model.named_parameters());
    scaler.scale(loss(*shared.ddp, 1)).backward();
    const Tensor first = shared.model.parameters()[0].grad();
    if (first.defined()) fill_(first, std::numeric_limits<double>::infinity());
    CHECK(!scaler.step(*shared.optimizer));
    scaler.update();
    CHECK(scaler.get_scale() == 32768);
    CHECK(values_of(shared.model.named_parameters()) == before);
  });
}

TEST_CASE("a scaler without the group is an Error, as each rank has its own gradients alone") {
  two([](const Group& group, int) {
    Shared shared(group);
    nn::GradScaler scaler;
    scaler.scale(loss(*shared.ddp, 1)).backward();
    CHECK_THROWS_WITH(scaler.step(*shared.optimizer),
                      doctest::Contains("give the scaler the group of the Pipe or ShardedDDP"));
    Mlp whole;  // DDP gives all ranks all of them
    make_whole(whole);
    Zero<nn::SGD> optimizer(group, whole.named_parameters(), nn::SGDOptions{.lr = 0.25});
    DDP ddp(whole, group);
    scaler.scale(loss(ddp, 1)).backward();
    CHECK(scaler.step(optimizer));
  });
}

TEST_CASE("parameters that are frozen and thawed, and some that are not the optimizer's") {
  two([](const Group& group, int rank) {
    Mlp model, alone;
    make_whole(model);
    make_whole(alone);
    const NamedTensors named = model.named_parameters(), others = alone.named_parameters();
    Zero<nn::SGD> optimizer(group, NamedTensors(named.begin(), named.begin() + 3),
                            nn::SGDOptions{.lr = 0.25});
    Sharded ddp(model, optimizer, {.buckets = apart});
    for (int step = 0; step < 4; ++step) {
      const bool frozen = step % 2 == 1;
      model.zero_grad();
      alone.zero_grad();
      named[0].second.set_requires_grad(!frozen);
      others[0].second.set_requires_grad(!frozen);
      loss(ddp, rank + 1).backward();
      loss(alone, rank + 1).backward();
      for (std::size_t p = frozen ? 1 : 0; p < 4; ++p) {
        const Tensor expected = others[p].second.grad().clone();
        group.all_reduce(expected, comm::ReduceOp::avg).wait();
        const bool mine = p == 3 || optimizer.placement().owners[p] == rank;
        CHECK(named[p].second.grad().defined() == mine);
        if (mine) {
          CHECK(named[p].second.grad().to_vector<float>() == expected.to_vector<float>());
        }
      }
      CHECK((!frozen || !named[0].second.grad().defined()));
    }
  });
}

TEST_CASE("a parameter that is frozen before the step of its gradient is stepped by its owner") {
  two([](const Group& group, int rank) {
    Mlp model, alone;
    make_whole(model);
    make_whole(alone);
    Zero<nn::SGD> optimizer(group, model.named_parameters(), nn::SGDOptions{.lr = 0.25});
    Sharded ddp(model, optimizer, {.buckets = apart});
    nn::SGD expected(alone.named_parameters(), {.lr = 0.25});
    for (int step = 0; step < 3; ++step) {  // frozen in the first step, thawed, frozen
      optimizer.zero_grad();
      expected.zero_grad();
      for (nn::Module* each : std::initializer_list<nn::Module*>{&model, &alone}) {
        each->parameters()[0].set_requires_grad();
      }
      loss(ddp, rank + 1).backward();
      loss(alone, rank + 1).backward();
      for (const Tensor& p : alone.parameters()) {
        group.all_reduce(p.grad(), comm::ReduceOp::avg).wait();
      }
      if (step != 1) model.parameters()[0].set_requires_grad(false);
      optimizer.step();
      expected.step();
      CHECK(values_of(model.named_parameters()) == values_of(alone.named_parameters()));
      make_whole(model);  // so that gradients stay whole numbers
      make_whole(alone);
    }
  });
}

TEST_CASE("gradients that are not averaged yet are not clipped, on any rank") {
  for (const int world : {2, 3}) {
    ranks(world, [](const Group& group, int rank) {
      Shared shared(group);
      {
        const auto guard = shared.ddp->no_sync();
        loss(*shared.ddp, rank + 1).backward();
      }
      const auto before = shared.model.parameters()[0].grad().to_vector<float>();
      check_has(error_of([&] { shared.ddp->clip_grad_norm_(1.0); }), "not averaged yet");
      CHECK(shared.model.parameters()[0].grad().to_vector<float>() == before);
      shared.optimizer->zero_grad();
      loss(*shared.ddp, rank + 1).backward();
      CHECK(shared.ddp->clip_grad_norm_(1e9).item<double>() > 0);
    });
  }
}

TEST_CASE("samples count as with DDP") {
  two([](const Group& group, int rank) {
    Shared shared(group);
    const double samples = rank == 0 ? 1 : 3;
    const Tensor mean = rank == 0 ? loss(*shared.ddp, 1) : loss(*shared.ddp, 2);
    shared.ddp->backward(mean, samples);
    loss(shared.alone, rank + 1).backward();
    for (std::size_t p = 0; p < 4; ++p) {
      const Tensor expected = shared.alone.parameters()[p].grad() * (samples / 4);
      group.all_reduce(expected.detach()).wait();
      const Tensor grad = shared.model.parameters()[p].grad();
      if (grad.defined()) CHECK(grad.to_vector<float>() == expected.to_vector<float>());
    }
  });
}

TEST_CASE("what needs whole gradients everywhere does not go with owners") {
  const std::string hook = failure([](const Group& group, int) {
    Shared shared(group);
    shared.ddp->register_comm_hook(nn::noop_hook());
  });
  check_has(hook, "gradients go to one owner each, and through no hook");
  const std::string join = failure([](const Group& group, int rank) {
    Shared shared(group);
    nn::Join uneven(*shared.ddp);
    for (int step = 0; uneven.next(step < 2 + rank); ++step) {
      shared.optimizer->zero_grad();
      loss(*shared.ddp, rank).backward();
    }
  });
  check_has(join, "gradients of wrapper 0 go to one owner each (ShardedDDP)");
  const std::string type = failure([](const Group& group, int) {
    Shared shared(group, {.mixed_precision = {.reduce_dtype = DType::bf16}});
  });
  check_has(type, "reduce_dtype makes a communication hook");
  const std::string owner = failure([](const Group& group, int) {
    Mlp model;
    DDP ddp(model, group, {.owner_of = [](const Tensor&) { return 2; }});
  });
  check_has(owner, "is said to be rank 2's, and there are 2");
}

TEST_CASE("the plan says whose buckets are") {
  std::vector<nn::ParameterSpec> specs;
  for (const int owner : {0, 1, 0, nn::everyone, 1}) {
    specs.push_back({concat("p", specs.size()), {4}, DType::f32, true, false, 0, owner});
  }
  const auto plan = nn::plan_buckets(specs);
  std::vector<std::pair<int, std::vector<int>>> buckets;
  for (const nn::Bucket& bucket : plan) {
    buckets.emplace_back(bucket.owner, std::vector<int>());
    for (const auto& entry : bucket.entries) buckets.back().second.push_back(entry.parameter);
  }
  CHECK(buckets == std::vector<std::pair<int, std::vector<int>>>{
                       {nn::everyone, {3}}, {0, {2, 0}}, {1, {4, 1}}});
  check_has(nn::describe(specs, plan), "f32 for rank 1: 4@0 1@16");
}
