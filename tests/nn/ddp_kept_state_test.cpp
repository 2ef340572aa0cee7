// SPDX-License-Identifier: Apache-2.0
// Hooks that keep something between steps, or that average over a part of the ranks: whose state it
// is, and whom their steps meet.
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/local_sgd.h>
#include <peal/nn/parallel/power_sgd.h>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Two of its kind have parameters of one name.
struct Wide : nn::Module {
  nn::Linear a = add("a", nn::Linear(16, 16, false));
};

Tensor gradient(const Wide& model, int seed) {
  std::vector<float> values;
  for (int i = 0; i < 256; ++i) values.push_back(static_cast<float>((i * seed) % 13 - 6));
  return sum(model.a.weight * Tensor::from(values, {16, 16}));
}

// Uses its second layer where it is told to.
struct Two : nn::Module {
  nn::Linear a = add("a", nn::Linear(3, 2)), b = add("b", nn::Linear(3, 2));
  std::shared_ptr<bool> both = std::make_shared<bool>(true);
  Tensor forward(const Tensor& x) override { return *both ? a(x) + b(x) : a(x); }
};

}  // namespace

TEST_CASE("a state that two wrappers share is an error, and not one that forgets by turns") {
  two([](const Group& group, int rank) {
    Wide one, other;
    auto first = std::make_unique<DDP>(one, group);
    DDP second(other, group);
    const nn::PowerSGD power(group, {.start_powerSGD_iter = 1});
    first->register_comm_hook(power.hook());
    second.register_comm_hook(power.hook());
    for (int k = 0; k < 3; ++k) {
      one.zero_grad();
      gradient(one, 3 + rank + k).backward();
    }
    std::vector<float> left;  // out of the first one's gradients
    for (const auto& [name, tensor] : power.state_dict()) {
      if (name == "a.weight.error") left = tensor.to_vector<float>();
    }
    REQUIRE(!left.empty());
    CHECK_THROWS_WITH(gradient(other, 5 + rank).backward(),
                      doctest::Contains("step 1, bucket 0: a.weight: PowerSGD is kept for one "
                                        "wrapper, and another one calls its hook"));
    for (const auto& [name, tensor] : power.state_dict()) {
      if (name == "a.weight.error") CHECK(tensor.to_vector<float>() == left);
    }
    CHECK(power.iteration() == 3);
  });
  two([](const Group& group, int rank) {
    Wide one, other;
    DDP first(one, group), second(other, group);
    const nn::PostLocalSGDState state(group, {}, {.start_localSGD_iter = 2});
    first.register_comm_hook(nn::post_localSGD_hook(state));
    second.register_comm_hook(nn::post_localSGD_hook(state));
    gradient(one, 3 + rank).backward();
    CHECK_THROWS_WITH(gradient(other, 3 + rank).backward(), doctest::Contains("PostLocalSGDState"));
    CHECK(state.step() == 1);
  });
}

TEST_CASE("a state goes on under another wrapper when the first has gone") {
  two([](const Group& group, int rank) {
    Wide one;
    const nn::PowerSGD power(group, {.start_powerSGD_iter = 1});
    for (int k = 0; k < 4; k += 2) {
      DDP ddp(one, group);
      ddp.register_comm_hook(power.hook());
      for (int i = 0; i < 2; ++i) {
        one.zero_grad();
        gradient(one, 3 + rank + k + i).backward();
      }
    }
    CHECK(power.iteration() == 4);
  });
}

TEST_CASE("steps of local SGD meet nobody outside of their part") {
  ranks(4, [](const Group& group, int rank) {
    const Group pair = group.split(rank / 2);
    Two model;
    make_whole(model);
    DDP ddp(model, group, {.buckets = apart});
    const nn::PostLocalSGDState state(group, pair, {.start_localSGD_iter = 2});
    ddp.register_comm_hook(nn::post_localSGD_hook(state));
    for (int k = 0; k < 2; ++k) loss(ddp, rank + k).backward();
    for (int k = 2; k < 6; ++k) {
      const std::uint64_t before = group.sequence();
      ddp.zero_grad();
      loss(ddp, rank + k).backward();
      // The order of the first step is learnt in the third.
      if (k > 2) CHECK(group.sequence() == before);
    }
  });
}

TEST_CASE("a gradient that is missing in a step of local SGD is told to all ranks") {
  std::atomic<int> told{0};
  CHECK_THROWS(ranks(4, [&](const Group& group, int rank) {
    try {
      const Group pair = group.split(rank / 2);
      Two model;
      DDP ddp(model, group);
      ddp.register_comm_hook(nn::post_localSGD_hook({group, pair, {.start_localSGD_iter = 1}}));
      loss(ddp, rank).backward();
      *model.both = rank != 3;
      loss(ddp, rank).backward();
      group.barrier().wait();
    } catch (const Error& error) {
      const std::string text = error.what();
      if (text.find("[ddp] rank 3: no gradient came for b.weight, b.bias in step 2") !=
          std::string::npos) {
        ++told;
      }
      throw;
    }
  }));
  CHECK(told == 4);
}
