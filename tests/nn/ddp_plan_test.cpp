// SPDX-License-Identifier: Apache-2.0
// Which gradients travel together, which do not travel, and what tells that replicas are equal.
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/sync_batch_norm.h>

#include <mutex>
#include <set>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Used in another order than registered.
struct Mixed : nn::Module {
  nn::Linear a = add("a", nn::Linear(3, 3, false)), b = add("b", nn::Linear(3, 3, false)),
             c = add("c", nn::Linear(3, 3, false));
  Tensor forward(const Tensor& x) override { return a(c(b(x))); }
};

std::string text_of(const DDP& ddp) {
  std::string text;
  const NamedTensors parameters = ddp.named_parameters();
  for (const nn::Bucket& bucket : ddp.reducer().buckets()) {
    for (const auto& entry : bucket.entries) {
      text += parameters[static_cast<std::size_t>(entry.parameter)].first[0];
    }
    text += ' ';
  }
  return text;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("an order from an earlier run is the plan from the first step on") {
  two([](const Group& group, int rank) {
    const auto arrival = [&] {
      Twins<Mixed> first(group, {.buckets = apart});
      CHECK(text_of(*first.ddp) == "c b a ");
      loss(*first.ddp, rank + 1).backward();
      return first.ddp->arrival();
    }();
    CHECK(arrival == Names{"a.weight", "c.weight", "b.weight"});
    Twins<Mixed> pair(group, {.buckets = apart, .order = {arrival[0], arrival[1]}});
    CHECK(text_of(*pair.ddp) == "a c b ");
    loss(*pair.ddp, rank + 1).backward();
    loss(pair.alone, rank + 1).backward();
    check_averaged(pair.model, pair.alone, group);
  });
}

TEST_CASE("delayed parameters come last, in buckets of their own") {
  two([](const Group& group, int rank) {
    Twins<Mixed> pair(group, {.delayed = {"a.weight", "c.weight"}});
    CHECK(text_of(*pair.ddp) == "b ca ");
    for (int k = 0; k < 2; ++k) {
      pair.model.zero_grad();
      pair.alone.zero_grad();
      loss(*pair.ddp, rank + 1).backward();
      loss(pair.alone, rank + 1).backward();
      check_averaged(pair.model, pair.alone, group);
    }
    Mixed other;
    CHECK_THROWS_WITH(DDP(other, group, {.delayed = {"d.weight"}}),
                      doctest::Contains("delayed has d.weight, which the model has not"));
  });
}

TEST_CASE("ignored parameters and buffers are each rank's own") {
  struct Own : nn::Module {
    nn::Linear shared = add("shared", nn::Linear(3, 2)), own = add("own", nn::Linear(3, 2));
    Tensor mine = add_buffer("mine", Tensor::zeros({2}));
    Tensor forward(const Tensor& x) override { return shared(x) + own(x) + mine; }
  };
  two([](const Group& group, int rank) {
    const auto set = [&](Own& model) { fill_(model.mine, rank); };
    Own model, alone;
    make_whole(model);
    make_whole(alone);
    set(model);
    set(alone);
    fill_(model.own.weight.detach(), rank);
    fill_(alone.own.weight.detach(), rank);
    DDP ddp(model, group, {.ignored = {"own.weight", "own.bias", "mine"}});
    for (int k = 0; k < 2; ++k) {
      ddp.zero_grad();
      alone.zero_grad();
      loss(ddp, rank + 1).backward();
      loss(alone, rank + 1).backward();
      CHECK(model.mine.to_vector<float>()[0] == static_cast<float>(rank));
      CHECK(model.own.weight.grad().to_vector<float>() ==
            alone.own.weight.grad().to_vector<float>());
      const Tensor expected = alone.shared.weight.grad().clone();
      group.all_reduce(expected, comm::ReduceOp::avg).wait();
      CHECK(model.shared.weight.grad().to_vector<float>() == expected.to_vector<float>());
    }
  });
}

TEST_CASE("replicas that have come apart are named, with the step, on all ranks") {
  std::mutex mutex;
  std::set<std::string> texts;
  int told = 0;
  ranks(3, [&](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group, {.check_every = 3});
    for (int k = 0; k < 6; ++k) {
      ddp.zero_grad();
      if (k == 4 && rank == 1) {  // the lowest bit of one number
        const Tensor weight = net.parameters()[2];
        auto* const bytes = static_cast<unsigned char*>(weight.raw());
        bytes[4] ^= 1U;
      }
      try {
        loss(ddp, 1).backward();
        CHECK(k != 5);
      } catch (const Error& error) {
        CHECK(k == 5);
        const std::lock_guard lock(mutex);
        texts.insert(error.what());
        ++told;
      }
    }
  });
  CHECK(told == 3);
  REQUIRE(texts.size() == 1);
  const std::string& text = *texts.begin();
  CAPTURE(text);
  CHECK(text.find("what replicas have in step 6 is '3.weight ") != std::string::npos);
  CHECK(text.find("on rank 0 and '3.weight ") != std::string::npos);
  CHECK(text.find("on rank 1") != std::string::npos);
}

TEST_CASE("explain() says what is sent, in which order") {
  two([](const Group& group, int) {
    Mlp net;
    DDP ddp(net, group, {.buckets = apart, .find_unused_parameters = true, .check_every = 10});
    const std::string text = ddp.explain();
    CAPTURE(text);
    CHECK(text.find(concat("DDP: rank ", group.rank(), " of 2 over threads; 4 parameters")) == 0);
    CHECK(text.find("  bucket 0: f32 8 bytes: 3.bias\n") != std::string::npos);
    CHECK(text.find("find_unused_parameters") != std::string::npos);
    CHECK(text.find("parameters and buffers are compared every 10 steps") != std::string::npos);
    Mlp other;
    const std::string last =
        DDP(other, group, {.order = {"3.weight"}, .delayed = {"3.bias"}}).explain();
    CHECK(last.find("  buckets are in the order that was given\n  3.bias goes last\n") !=
          std::string::npos);
  });
}

TEST_CASE("explain() names what changes the sums: hook, types, layers, caps and order") {
  two([](const Group& group, int) {
    nn::Sequential net(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Linear(4, 2));
    const auto says = [](const DDP& ddp, const std::string& words) {
      const std::string text = ddp.explain();
      CAPTURE(text);
      CAPTURE(words);
      return text.find(words) != std::string::npos;
    };
    {
      DDP ddp(net, group);
      for (const char* words : {"communication hook", "mixed precision", "times are taken",
                                "synchronised batch norm", "came in a step"}) {
        CHECK_FALSE(says(ddp, words));
      }
      CHECK(says(ddp, "closed at 25 MiB, the first of a kind at 1024 KiB: as ranks on one node"));
      loss(ddp, 1).backward();
      loss(ddp, 1).backward();
      CHECK(says(ddp, "in the order in which rank 0's gradients came in a step"));
    }
    nn::Module model = nn::convert_sync_batchnorm(net, group);
    DDP ddp(model, group,
            {.all_reduce_cost = [](double bytes) { return 1e-5 + bytes * 1e-9; },
             .mixed_precision = {.param_dtype = DType::bf16, .buffer_dtype = DType::f32},
             .measure_every = 3});
    CHECK(says(ddp, "parameters in bf16, gradients travel in bf16, buffers in f32"));
    CHECK(says(ddp, "a communication hook is called"));
    CHECK(says(ddp, "times are taken every 3 steps"));
    CHECK(says(ddp, "1: synchronised batch norm over 2 ranks"));
    CHECK(says(ddp, "the shortest step by all_reduce_cost"));
  });
}

TEST_CASE("an optimizer whose state differs on a rank is told of by name, where it is compared") {
  for (const bool compared : {false, true}) {
    two([&](const Group& group, int rank) {
      Mlp net;
      make_whole(net);
      DDP ddp(net, group, {.check_every = 2});
      nn::SGD optimizer(ddp.named_parameters(), {.lr = 0.125, .momentum = 0.5});
      if (compared) ddp.check_replicas_of("optimizer", optimizer);
      const auto step = [&] {
        optimizer.zero_grad();
        loss(ddp, 1).backward();
        optimizer.step();
      };
      for (int k = 0; k < 3; ++k) step();
      for (const auto& [name, tensor] : optimizer.state_dict()) {
        // A flipped bit, in what the next step alone reads.
        if (rank == 1 && name.find("3.bias") != std::string::npos && tensor.dtype() == DType::f32) {
          tensor.data<float>()[0] += 1;
        }
      }
      if (!compared) {
        step();  // whose own digests are of what was before
        return;
      }
      CHECK_THROWS_WITH(step(), doctest::Contains("what replicas have in step 4 is 'optimizer."));
    });
  }
}
