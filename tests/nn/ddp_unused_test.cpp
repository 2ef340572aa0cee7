// SPDX-License-Identifier: Apache-2.0
// Parameters that get no gradient on some ranks, or on all: an Error that draws them, or none with
// find_unused_parameters, or as in the first step with static_graph.
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/missing.h>
#include <peal/tests/folder.h>

#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Three branches, of which a call takes those with a bit in `which`, which copies share.
struct Branches : nn::Module {
  nn::Linear a = add("a", nn::Linear(3, 2)), b = add("b", nn::Linear(3, 2)),
             c = add("c", nn::Linear(3, 2));
  std::shared_ptr<int> which = std::make_shared<int>(7);
  Tensor forward(const Tensor& x) override {
    Tensor sum;
    const auto take = [&](int bit, nn::Linear& branch) {
      if ((*which & bit) == 0) return;
      const Tensor y = branch(x);
      sum = sum.defined() ? sum + y : y;
    };
    take(1, a);
    take(2, b);
    take(4, c);
    return sum;
  }
};

Tensor loss_of(Branches& model, nn::Module& call, int which, double value) {
  *model.which = which;
  return loss(call, value);
}

// What the gradients must be: the average over the ranks, with zeros where a rank has none; and
// undefined where none has one.
std::vector<std::optional<std::vector<float>>> expected_of(const nn::Module& alone,
                                                           const Group& group) {
  std::vector<std::optional<std::vector<float>>> all;
  for (const Tensor& p : alone.parameters()) {
    const Tensor sum = p.grad().defined() ? p.grad().clone() : Tensor::zeros(p.shape());
    const Tensor any = full({1}, p.grad().defined() ? 1. : 0.);
    group.all_reduce(sum, comm::ReduceOp::avg).wait();
    group.all_reduce(any).wait();
    all.emplace_back();
    if (any.item<float>() > 0) all.back() = sum.to_vector<float>();
  }
  return all;
}

void check_gradients(const nn::Module& model, const nn::Module& alone, const Group& group) {
  const auto expected = expected_of(alone, group);
  const NamedTensors mine = model.named_parameters();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    CAPTURE(mine[i].first);
    const Tensor grad = mine[i].second.grad();
    REQUIRE(grad.defined() == expected[i].has_value());
    if (grad.defined()) CHECK(grad.to_vector<float>() == *expected[i]);
  }
}

}  // namespace

TEST_CASE(
    "gradients that never came are drawn on every rank, in that step, and the group goes on") {
  std::mutex mutex;
  std::set<std::string> texts;
  int told = 0;
  ranks(4, [&](const Group& group, int rank) {
    Branches model;
    DDP ddp(model, group, {.buckets = apart});
    const int which[] = {7, 3, 5, 3};
    try {
      loss_of(model, ddp, which[rank], 1).backward();
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      texts.insert(error.what());
      ++told;
    }
    ddp.zero_grad();  // who caught it may leave the step out
    Branches alone;
    make_whole(model);
    make_whole(alone);
    loss_of(model, ddp, 7, rank + 1).backward();
    loss(alone, rank + 1).backward();
    check_averaged(model, alone, group);
  });
  CHECK(told == 4);
  REQUIRE(texts.size() == 1);
  const std::string& text = *texts.begin();
  CAPTURE(text);
  CHECK(text.find("[ddp] step 1: rank 1: no gradient came for c.weight, c.bias; "
                  "rank 2: no gradient came for b.weight, b.bias; rank 3: ") == 0);
  CHECK(text.find("find_unused_parameters\n"
                  "rank     0 1 2 3\n"
                  "b.weight . . x .\n"
                  "b.bias   . . x .\n"
                  "c.weight . x . x\n"
                  "c.bias   . x . x") != std::string::npos);
}

TEST_CASE("of many names and ranks the first are told, and how many others there are") {
  std::vector<std::string> names;
  for (int i = 0; i < 23; ++i) names.push_back(concat("p", i));
  const std::vector<bool> all(23, true), none(23, false);
  const std::string few = nn::describe_missing(names, {none, all}, {4, 11});
  CHECK(few.find("rank 11: no gradient came for p0, p1") == 0);
  CHECK(few.find("p19 and 3 others\nrank  4 11\n") != std::string::npos);
  CHECK(few.find("\np19   .  x\nand 3 others") != std::string::npos);
  std::vector<std::vector<bool>> ranks(100, all);
  std::vector<int> numbers(100);
  const std::string many = nn::describe_missing(names, ranks, numbers);
  CHECK(many.find("; and so on 80 other ranks") != std::string::npos);
  CHECK(many.find('\n') == std::string::npos);
}

TEST_CASE("with a hook they are drawn, too, and the group goes on") {
  std::atomic<int> told{0};
  ranks(3, [&](const Group& group, int rank) {
    Twins<Branches> pair(group, {.buckets = apart});
    pair.ddp->register_comm_hook(nn::average_gradients(group));
    try {
      loss_of(pair.model, *pair.ddp, rank == 1 ? 3 : 7, 1).backward();
    } catch (const Error& error) {
      const std::string text = error.what();
      CAPTURE(text);
      CHECK(text.find("[ddp] step 1: rank 1: no gradient came for c.weight, c.bias. ") == 0);
      CHECK(text.find("rank     0 1 2\nc.weight . x .\nc.bias   . x .") != std::string::npos);
      ++told;
    }
    pair.ddp->zero_grad();
    loss_of(pair.model, *pair.ddp, 7, 3 * rank).backward();
    loss_of(pair.alone, pair.alone, 7, 3 * rank).backward();
    check_averaged(pair.model, pair.alone, group);
  });
  CHECK(told == 3);
}

TEST_CASE("with a hook that sends nothing, the rank that has none is told to all") {
  struct Many : nn::Module {
    Many() {
      for (int i = 0; i < 25; ++i) all.push_back(add_parameter(concat("p", i), ones({1})));
    }
    Tensor forward(const Tensor& x) override { return x * all[0]; }
    std::vector<Tensor> all;
  };
  std::atomic<int> told{0};
  CHECK_THROWS(ranks(3, [&](const Group& group, int rank) {
    try {  // a rank may still be in the wrapper's start when the others have failed
      Many model;
      DDP ddp(model, group);
      ddp.register_comm_hook(nn::noop_hook());
      if (rank == 1) sum(ddp(ones({1}))).backward();
      group.barrier().wait();
    } catch (const Error& error) {
      if (std::string(error.what()).find("p19, p20 and 4 others in step 1") != std::string::npos) {
        ++told;
      }
      throw;
    }
  }));
  CHECK(told == 3);
}

TEST_CASE("find_unused_parameters: unused here means zeros, unused by all means untouched") {
  for (const nn::BucketCaps& caps : {nn::BucketCaps{}, apart}) {
    ranks(4, [&](const Group& group, int rank) {
      Twins<Branches> pair(group, {.buckets = caps, .find_unused_parameters = true});
      // By step and rank: none leaves any out; some do; nobody uses c; nobody but rank 3 uses c.
      const int which[5][4] = {
          {7, 7, 7, 7}, {1, 2, 4, 7}, {1, 2, 3, 1}, {3, 3, 3, 4}, {7, 7, 7, 7}};
      for (const auto& step : which) {
        pair.model.zero_grad();
        pair.alone.zero_grad();
        loss_of(pair.model, *pair.ddp, step[rank], rank + 1).backward();
        loss_of(pair.alone, pair.alone, step[rank], rank + 1).backward();
        check_gradients(pair.model, pair.alone, group);
      }
    });
  }
}

TEST_CASE("a gradient that no rank used keeps its value, also where ranks have others") {
  two([](const Group& group, int rank) {
    Twins<Branches> pair(group, {.buckets = apart, .find_unused_parameters = true});
    loss_of(pair.model, *pair.ddp, 7, rank + 1).backward();
    const Tensor own = full({2}, rank + 0.1);
    pair.model.c.bias.grad().copy_(own);
    loss_of(pair.model, *pair.ddp, 3, rank + 1).backward();
    CHECK(pair.model.c.bias.grad().to_vector<float>() == own.to_vector<float>());
  });
}

TEST_CASE("a use under no_sync counts for the step that ends the accumulation") {
  for (const bool static_graph : {false, true}) {
    two([&](const Group& group, int rank) {
      Twins<Branches> pair(group, {.buckets = apart,
                                   .find_unused_parameters = !static_graph,
                                   .static_graph = static_graph});
      for (int k = 0; k < 3; ++k) {
        pair.model.zero_grad();
        pair.alone.zero_grad();
        {
          const auto guard = pair.ddp->no_sync();
          loss_of(pair.model, *pair.ddp, rank == 0 ? 5 : 1, rank + 1).backward();
          loss_of(pair.alone, pair.alone, rank == 0 ? 5 : 1, rank + 1).backward();
        }
        loss_of(pair.model, *pair.ddp, 1, rank + 2).backward();
        loss_of(pair.alone, pair.alone, 1, rank + 2).backward();
        check_gradients(pair.model, pair.alone, group);
      }
    });
  }
}

TEST_CASE("a parameter that nobody uses is moved by no optimizer") {
  two([](const Group& group, int rank) {
    Branches model;
    DDP ddp(model, group, {.find_unused_parameters = true});
    nn::SGD optimizer(ddp.parameters(), {.lr = 0.1, .weight_decay = 0.5});
    const auto before = model.c.weight.to_vector<float>();
    const auto trained = model.a.weight.to_vector<float>();
    for (int k = 0; k < 3; ++k) {
      optimizer.zero_grad();
      loss_of(model, ddp, rank == 0 ? 1 : 2, 1).backward();
      optimizer.step();
    }
    CHECK(model.c.weight.to_vector<float>() == before);
    CHECK(model.a.weight.to_vector<float>() != trained);
    for (const Tensor& p : model.parameters()) CHECK(same_everywhere(p, group));
  });
}

TEST_CASE("once the first step has gone, what the graph does not reach holds no bucket back") {
  for (const bool static_graph : {false, true}) {
    two([&](const Group& group, int) {
      Branches model;
      DDP ddp(model, group,
              {.buckets = apart,
               .find_unused_parameters = !static_graph,
               .static_graph = static_graph});
      std::string events;
      ddp.register_comm_hook([&](nn::GradBucket& bucket) {
        events += concat(bucket.index, " ");
        return group.all_reduce(bucket.buffer, comm::ReduceOp::avg, bucket.label);
      });
      // The last gradient of all; c's come first, in buckets 0 and 1.
      model.a.weight.grad_slot().add_hook([&](const Tensor&) { events += "a "; });
      model.a.bias.grad_slot().add_hook([&](const Tensor&) { events += "a "; });
      for (int k = 0; k < 2; ++k) {
        events.clear();
        ddp.zero_grad();
        loss_of(model, ddp, 3, 1).backward();
        if (k == 0) {
          CHECK(events == "a a 0 1 2 3 4 5 ");
        } else if (static_graph) {  // what arrived in the first step comes first, c's last
          CHECK(events == "0 1 a 2 a 3 4 5 ");
        } else {
          CHECK(events.find("0 1 2 3 ") < events.find("a "));
        }
      }
    });
  }
}

namespace {

// `shared` is used in two recomputed segments, `other` in one where it is used at all.
struct Recomputed : nn::Module {
  nn::Linear stem = add("stem", nn::Linear(3, 3, false));
  nn::Linear shared = add("shared", nn::Linear(3, 3, false));
  nn::Linear other = add("other", nn::Linear(3, 3, false));
  bool recompute = false, twice = false;
  std::shared_ptr<bool> uses_other = std::make_shared<bool>(true);
  Tensor run(nn::Linear& layer, const Tensor& x) { return recompute ? again(layer, x) : layer(x); }
  Tensor forward(const Tensor& x) override {
    Tensor y = run(shared, stem(x));
    if (twice) y = run(shared, y);
    return *uses_other ? run(other, y) : y;
  }
};

}  // namespace

TEST_CASE("static_graph: a gradient in several parts is sent when it is whole") {
  two([](const Group& group, int rank) {
    Twins<Recomputed> pair(group, {.buckets = apart, .static_graph = true},
                           [](Recomputed& model) { model.recompute = model.twice = true; });
    pair.alone.twice = true;
    for (int k = 0; k < 3; ++k) {
      pair.model.zero_grad();
      pair.alone.zero_grad();
      loss(*pair.ddp, rank + 1).backward();
      loss(pair.alone, rank + 1).backward();
      check_averaged(pair.model, pair.alone, group);
    }
  });
}

TEST_CASE("find_unused_parameters sees what recomputed segments use, once it has seen them") {
  two([](const Group& group, int rank) {
    Twins<Recomputed> pair(group, {.buckets = apart, .find_unused_parameters = true},
                           [](Recomputed& model) { model.recompute = true; });
    for (int k = 0; k < 3; ++k) {
      pair.model.zero_grad();
      pair.alone.zero_grad();
      *pair.model.uses_other = *pair.alone.uses_other = k != 1 || rank == 0;
      loss(*pair.ddp, rank + 1).backward();
      loss(pair.alone, rank + 1).backward();
      check_gradients(pair.model, pair.alone, group);
    }
  });
}

TEST_CASE("static_graph: a step unlike the first is an error on every rank") {
  for (const bool more : {false, true}) {
    std::atomic<int> finished{0};
    const std::string message = failure([&](const Group& group, int rank) {
      Branches model;
      DDP ddp(model, group, {.buckets = apart, .static_graph = true});
      loss_of(model, ddp, 3, 1).backward();
      ++finished;
      loss_of(model, ddp, rank == 0 ? 3 : (more ? 7 : 1), 1).backward();
      ++finished;
    });
    CAPTURE(message);
    CHECK(finished == 2);
    CHECK(message.find("static_graph") != std::string::npos);
    CHECK(message.find(more ? "c." : "b.weight, b.bias") != std::string::npos);
  }
}

TEST_CASE("find_unused_parameters says nothing where all are used") {
  const std::string said = stderr_of([] {
    two([](const Group& group, int rank) {
      Branches model;
      DDP ddp(model, group, {.find_unused_parameters = true});
      for (int k = 0; k < 5; ++k) {
        model.zero_grad();
        loss_of(model, ddp, 7, rank + k).backward();
      }
    });
  });
  CHECK(said == "");
}

TEST_CASE("a use that zero_grad() gave up does not count") {
  two([](const Group& group, int) {
    Branches net;
    DDP ddp(net, group, {.find_unused_parameters = true});
    const auto check_untouched = [&] {
      ddp.zero_grad();
      loss_of(net, ddp, 3, 1).backward();
      CHECK(net.a.parameters()[0].grad().defined());
      CHECK_FALSE(net.c.parameters()[0].grad().defined());
    };
    {
      const auto guard = ddp.no_sync();
      loss_of(net, ddp, 7, 1).backward();
    }
    check_untouched();
    bool throws = true;
    net.a.parameters()[0].grad_slot().add_hook([&](const Tensor&) {
      if (throws) throw Error("once");
    });
    CHECK_THROWS_WITH(loss_of(net, ddp, 7, 1).backward(), "once");  // nothing was sent
    throws = false;
    check_untouched();
  });
  two([](const Group& group, int) {
    Branches net;
    DDP ddp(net, group, {.static_graph = true});
    loss_of(net, ddp, 3, 1).backward();
    ddp.zero_grad();
    {
      const auto guard = ddp.no_sync();
      loss_of(net, ddp, 7, 1).backward();
    }
    ddp.zero_grad();
    CHECK_NOTHROW(loss_of(net, ddp, 3, 1).backward());
  });
}
