// SPDX-License-Identifier: Apache-2.0
// Gradients under DDP are the average of what the ranks would have alone, however models and
// backwards are made: shared parameters, several forwards or backwards, accumulation, empty
// parameters, gradients that were there before.
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/sgd.h>

#include <utility>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

struct UsedTwice : nn::Module {
  nn::Linear in = add("in", nn::Linear(3, 3)), out = add("out", nn::Linear(3, 2));
  Tensor forward(const Tensor& x) override { return out(in(relu(in(x)))); }
};

struct Tied : nn::Module {
  nn::Linear in = add("in", nn::Linear(3, 3));
  nn::Module again = add("again", nn::Module(in));
  nn::Linear out = add("out", nn::Linear(3, 2));
  Tensor forward(const Tensor& x) override { return out(again(relu(in(x)))); }
};

}  // namespace

TEST_CASE("a parameter that is used several times, and one by two names") {
  two([](const Group& group, int rank) {
    Twins<UsedTwice> twice(group, {.buckets = apart});
    loss(*twice.ddp, rank + 1).backward();
    loss(twice.alone, rank + 1).backward();
    check_averaged(twice.model, twice.alone, group);

    Twins<Tied> tied(group, {.buckets = apart});
    CHECK(tied.ddp->reducer().buckets().size() == 4);
    loss(*tied.ddp, rank + 1).backward();
    loss(tied.alone, rank + 1).backward();
    check_averaged(tied.model, tied.alone, group);
  });
}

TEST_CASE("two forwards and one backward; one forward and two backwards") {
  two([](const Group& group, int rank) {
    Twins<UsedTwice> pair(group, {.buckets = apart});
    for (nn::Module* model :
         {static_cast<nn::Module*>(pair.ddp.get()), static_cast<nn::Module*>(&pair.alone)}) {
      const Tensor first = loss(*model, rank + 1), second = loss(*model, rank + 2);
      (first + second).backward();
    }
    check_averaged(pair.model, pair.alone, group);

    pair.model.zero_grad();
    pair.alone.zero_grad();
    const Tensor mine = loss(*pair.ddp, rank + 1), theirs = loss(pair.alone, rank + 1);
    mine.backward({}, true);
    theirs.backward({}, true);
    check_averaged(pair.model, pair.alone, group);
    mine.backward();  // the average stays, and what comes on top of it is averaged
    theirs.backward();
    check_averaged(pair.model, pair.alone, group);
  });
}

TEST_CASE("whether ranks meet is decided where backward runs, not where forward did") {
  two([](const Group& group, int rank) {
    Twins<Mlp> pair(group);
    DDP& ddp = *pair.ddp;
    Tensor of_rank;
    {
      const auto guard = ddp.no_sync();
      of_rank = loss(ddp, rank + 1);
    }
    of_rank.backward();  // Accelerate: trigger_sync_in_backward
    loss(pair.alone, rank + 1).backward();
    check_averaged(ddp, pair.alone, group);
    ddp.zero_grad();
    pair.alone.zero_grad();
    of_rank = loss(ddp, rank + 2);
    {
      const auto guard = ddp.no_sync();
      of_rank.backward();
    }
    loss(pair.alone, rank + 2).backward();
    CHECK(ddp.parameters()[2].grad().to_vector<float>() ==
          pair.alone.parameters()[2].grad().to_vector<float>());
    loss(ddp, 1).backward();
    loss(pair.alone, 1).backward();
    check_averaged(ddp, pair.alone, group);
  });
}

TEST_CASE("accumulation, then clipping, gives the same bits on all ranks") {
  two([](const Group& group, int rank) {
    Twins<UsedTwice> pair(group);
    {
      const auto guard = pair.ddp->no_sync();
      loss(*pair.ddp, rank + 1).backward();
      const auto inner = pair.ddp->no_sync();
      loss(*pair.ddp, 2 * rank + 1).backward();
    }
    loss(*pair.ddp, 3).backward();
    for (const int value : {rank + 1, 2 * rank + 1, 3}) loss(pair.alone, value).backward();
    check_averaged(pair.model, pair.alone, group);
    const auto norm = nn::clip_grad_norm_(pair.ddp->parameters(), 1.0);
    CHECK(same_everywhere(norm, group));
    for (const Tensor& p : pair.ddp->parameters()) CHECK(same_everywhere(p.grad(), group));
  });
}

TEST_CASE("an optimizer that was made before the wrap steps with the average") {
  two([](const Group& group, int rank) {
    const auto train = [&](bool before) {
      UsedTwice model;
      make_whole(model);
      std::unique_ptr<nn::SGD> optimizer;
      if (before) optimizer = std::make_unique<nn::SGD>(model.parameters(), nn::SGDOptions{});
      DDP ddp(model, group);
      if (!before) optimizer = std::make_unique<nn::SGD>(ddp.parameters(), nn::SGDOptions{});
      for (int k = 0; k < 3; ++k) {
        optimizer->zero_grad();
        (loss(ddp, rank + 1) * 1e-3).backward();
        optimizer->step();
      }
      std::vector<float> all;
      for (const Tensor& p : model.parameters()) {
        CHECK(same_everywhere(p, group));
        for (const float value : p.to_vector<float>()) all.push_back(value);
      }
      return all;
    };
    CHECK(train(true) == train(false));
  });
}

TEST_CASE("empty parameters, and a bucket of nothing else") {
  struct Empty : nn::Module {
    Tensor none = add_parameter("none", Tensor::zeros({0, 3}));
    Tensor nothing = add_parameter("nothing", Tensor::zeros({0}));
    nn::Linear fc = add("fc", nn::Linear(3, 2));
    Tensor void_too = add_parameter("void_too", Tensor::zeros({0}));
    Tensor forward(const Tensor& x) override {
      return fc(x) + sum(none) + sum(nothing) + sum(void_too);
    }
  };
  two([](const Group& group, int rank) {
    Twins<Empty> pair(group, {.buckets = apart});
    const auto& plan = pair.ddp->reducer().buckets();
    CHECK(plan.back().count == 0);
    for (int k = 0; k < 2; ++k) {
      loss(*pair.ddp, rank + 1).backward();
      loss(pair.alone, rank + 1).backward();
      check_averaged(pair.model, pair.alone, group);
    }
  });
}

TEST_CASE("gradients from before the wrap are part of the average") {
  two([](const Group& group, int rank) {
    UsedTwice model, alone;
    make_whole(model);
    make_whole(alone);
    loss(model, rank + 1).backward();
    DDP ddp(model, group);
    loss(ddp, rank + 3).backward();
    loss(alone, rank + 1).backward();
    loss(alone, rank + 3).backward();
    check_averaged(model, alone, group);
  });
}

TEST_CASE("hooks of the user see a rank's own gradient, and may change it") {
  two([](const Group& group, int rank) {
    Twins<UsedTwice> pair(group, {.buckets = apart});
    std::vector<float> seen;
    std::string order;
    const Tensor weight = pair.model.out.weight;
    weight.grad_slot().add_hook([&](const Tensor& grad) {
      seen = grad.to_vector<float>();
      mul_(grad, 2);
      order += "a";
    });
    weight.grad_slot().add_hook([&](const Tensor&) { order += "b"; });
    loss(*pair.ddp, rank + 1).backward();
    loss(pair.alone, rank + 1).backward();
    CHECK(order == "ab");
    const Tensor own = pair.alone.out.weight.grad();
    CHECK(seen == own.to_vector<float>());
    mul_(own, 2);
    check_averaged(pair.model, pair.alone, group);
  });
}

TEST_CASE("a wrapped model may be frozen for a while, and go on") {
  two([](const Group& group, int rank) {
    Twins<UsedTwice> judge(group, {.buckets = apart});
    Twins<UsedTwice> maker(group);
    for (int k = 0; k < 2; ++k) {
      judge.model.zero_grad();
      judge.alone.zero_grad();
      loss(*judge.ddp, rank + 1).backward();
      loss(judge.alone, rank + 1).backward();
      check_averaged(judge.model, judge.alone, group);

      // Through the frozen judge into the input.
      judge.model.requires_grad_(false);
      judge.alone.requires_grad_(false);
      maker.model.zero_grad();
      maker.alone.zero_grad();
      const auto made = [&](nn::Module& from) {
        const Tensor y = from(full({2, 3}, rank + 1.));
        return matmul(y, Tensor::from(std::vector<float>{1, 0, 2, 0, 1, 1}, {2, 3}));
      };
      sum((*judge.ddp)(made(*maker.ddp))).backward();
      sum(judge.alone(made(maker.alone))).backward();
      check_averaged(maker.model, maker.alone, group);
      judge.model.requires_grad_(true);
      judge.alone.requires_grad_(true);
    }
  });
}

TEST_CASE("a model of two outputs: of both, of one on a rank, and of one that is not to be there") {
  struct Heads : nn::Module {
    nn::Linear a = add("a", nn::Linear(3, 2)), b = add("b", nn::Linear(3, 2));
    std::pair<Tensor, Tensor> both(const Tensor& x) { return {a(x), b(x)}; }
  };
  const auto loss_of = [](const std::pair<Tensor, Tensor>& y, bool second) {
    const Tensor first = sum(y.first * y.first);
    return second ? first + sum(y.second * y.second) : first;
  };
  for (const bool find_unused : {false, true}) {
    two([&](const Group& group, int rank) {
      Twins<Heads> pair(group, {.find_unused_parameters = find_unused});
      const Tensor x = full({2, 3}, rank + 1.);
      for (int k = 0; k < 2; ++k) {
        pair.model.zero_grad();
        pair.alone.zero_grad();
        loss_of(pair.ddp->call(&Heads::both, x), true).backward();
        loss_of(pair.alone.both(x), true).backward();
        check_averaged(pair.model, pair.alone, group);
      }
      pair.model.zero_grad();
      pair.alone.zero_grad();
      const Tensor some = loss_of(pair.ddp->call(&Heads::both, x), rank == 0);
      if (!find_unused) {
        CHECK_THROWS_WITH(some.backward(),
                          doctest::Contains("rank 1: no gradient came for b.weight, b.bias"));
        return;
      }
      some.backward();
      loss_of(pair.alone.both(full({2, 3}, 1.)), true).backward();  // rank 0's
      for (const auto& [mine, own] : {std::pair(pair.model.b.weight, pair.alone.b.weight),
                                      std::pair(pair.model.b.bias, pair.alone.b.bias)}) {
        CHECK(mine.grad().to_vector<float>() == (own.grad() / 2).to_vector<float>());
      }
    });
  }
}
