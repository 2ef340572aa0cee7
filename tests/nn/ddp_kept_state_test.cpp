// SPDX-License-Identifier: Apache-2.0
// Hooks that keep something between steps, or that average over a part of the ranks: whose state it
// is, and whom their steps meet.
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/local_sgd.h>
#include <peal/nn/parallel/power_sgd.h>
#include <peal/tests/difference.h>

#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include "ddp_ranks.h"
#include "power_sgd_simulation.h"

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

// Two matrices that shrink, of which a step may use either, or both.
struct Matrices : nn::Module {
  nn::Linear a = add("a", nn::Linear(8, 6, false)), b = add("b", nn::Linear(8, 6, false));
};
constexpr int of_a = 1, of_b = 2;

// Of rank `rank` in the k-th backward, of whose loss this is the gradient.
std::vector<float> slope_of(int rank, int k, int which) {
  std::vector<float> values;
  for (int i = 0; i < 48; ++i) {
    values.push_back(static_cast<float>((i * (3 + which) + 7 * rank * i + 5 * k * i * i) % 13 - 6));
  }
  return values;
}

Tensor loss_of(const Matrices& model, int rank, int k, int which) {
  Tensor loss;
  for (const int one : {of_a, of_b}) {
    if ((which & one) == 0) continue;
    const Tensor& weight = one == of_a ? model.a.weight : model.b.weight;
    const Tensor part = sum(weight * Tensor::from(slope_of(rank, k, one), {6, 8}));
    loss = loss.defined() ? loss + part : part;
  }
  return loss;
}

using Numbers = std::vector<std::vector<float>>;

Numbers kept_of(const nn::PowerSGD& power, std::string_view parameter) {
  Numbers values;
  for (const auto& [name, tensor] : power.state_dict()) {
    if (name.find(parameter) == 0) values.push_back(tensor.to_vector<float>());
  }
  return values;
}

// By step, backward (of which all but the last are under no_sync()) and rank: what the loss uses.
const std::vector<std::vector<std::array<int, 3>>> uses{
    {{3, 3, 3}},
    {{3, 3, 3}},
    {{1, 1, 1}},  // nobody uses b
    {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {{1, 3, 1}},
    {{3, 3, 3}},
    {{2, 2, 2}, {2, 2, 2}},
    {{3, 1, 1}, {1, 1, 1}},  // b's only use is under no_sync()
    {{3, 1, 2}, {2, 3, 1}, {3, 3, 3}},
    {{1, 1, 1}},
    {{3, 3, 3}}};

// Each step against one process that sees all ranks' gradients, by parameter.
void check_unused(int world, const nn::DDPOptions& options, bool over_samples) {
  ranks(world, [&](const Group& group, int rank) {
    Matrices net;
    DDP ddp(net, group, options);
    const nn::PowerSGD power(group, {.start_powerSGD_iter = 1});
    ddp.register_comm_hook(power.hook());
    const std::vector<Shape> shapes{{6, 8}};
    const nn::Bucket alone{.entries = {{0, 0}}, .count = 48};
    PowerSGDSimulation simulation;
    for (int p = 0; p < 2; ++p) simulation.add(alone, shapes, static_cast<std::size_t>(world));
    for (std::size_t step = 0; step < uses.size(); ++step) {
      const std::size_t backwards = uses[step].size();
      const auto number = [&](std::size_t k) { return static_cast<int>(4 * step + k); };
      const auto samples = [&](int r, std::size_t k) -> double {
        return over_samples ? (5 * r + 3 * number(k)) % 4 + 1 : 1;
      };
      ddp.zero_grad();
      double total = 0;
      for (std::size_t k = 0; k < backwards; ++k) {
        for (int r = 0; r < world; ++r) total += samples(r, k);
        const int which = uses[step][k][static_cast<std::size_t>(rank)];
        const auto backward = [&] {
          const Tensor mine = loss_of(net, rank, number(k), which);
          over_samples ? ddp.backward(mine, samples(rank, k)) : mine.backward();
        };
        if (k + 1 == backwards) {
          backward();
        } else {
          const auto guard = ddp.no_sync();
          backward();
        }
      }
      if (!over_samples) total = world;
      for (const std::size_t p : {0, 1}) {
        const int bit = p == 0 ? of_a : of_b;
        bool anywhere = false;
        std::vector<std::vector<double>> sums;  // by rank, so that their mean is the gradient
        for (int r = 0; r < world; ++r) {
          std::vector<double>& sum = sums.emplace_back(48, 0.0);
          for (std::size_t k = 0; k < backwards; ++k) {
            if ((uses[step][k][static_cast<std::size_t>(r)] & bit) == 0) continue;
            anywhere = true;
            const auto slope = slope_of(r, number(k), bit);
            for (std::size_t i = 0; i < 48; ++i) sum[i] += slope[i] * samples(r, k) * world / total;
          }
        }
        CAPTURE(step);
        CAPTURE(p);
        const Tensor grad = p == 0 ? net.a.weight.grad() : net.b.weight.grad();
        REQUIRE(grad.defined() == anywhere);
        if (!anywhere) continue;
        std::vector<double> want(48, 0.0);
        if (step == 0) {  // before its start
          for (const auto& sum : sums) {
            for (std::size_t i = 0; i < 48; ++i) want[i] += sum[i] / world;
          }
        } else {
          want = simulation.step(p, alone, shapes, sums);
        }
        const auto got = grad.to_vector<float>();
        double off = 0;
        for (std::size_t i = 0; i < 48; ++i) off = larger(off, std::abs(got[i] - want[i]));
        CHECK(off <= 2e-3);
        CHECK(same_everywhere(grad, group));
      }
    }
  });
}

}  // namespace

TEST_CASE("what PowerSGD left out of a parameter that no rank uses is there in its next step") {
  for (const bool over_samples : {false, true}) {
    for (const nn::BucketCaps& caps : {nn::BucketCaps{}, apart}) {
      for (const int world : {1, 2, 3}) {
        CAPTURE(over_samples);
        CAPTURE(world);
        check_unused(world, {.buckets = caps, .find_unused_parameters = true}, over_samples);
      }
    }
  }
}

TEST_CASE("what PowerSGD keeps of a parameter stays bit by bit while no rank uses it") {
  for (const bool static_graph : {false, true}) {
    for (const bool feedback : {true, false}) {
      two([&](const Group& group, int rank) {
        Matrices net;
        const nn::PowerSGD power(group, {.start_powerSGD_iter = 1, .use_error_feedback = feedback});
        {
          DDP ddp(net, group);
          ddp.register_comm_hook(power.hook());
          for (int k = 0; k < 3; ++k) {
            ddp.zero_grad();
            loss_of(net, rank, k, of_a | of_b).backward();
          }
        }
        const Numbers of_both = kept_of(power, "a."), before = kept_of(power, "b.");
        REQUIRE(before.size() == (feedback ? 2 : 1));
        DDP ddp(net, group,
                {.find_unused_parameters = !static_graph, .static_graph = static_graph});
        ddp.register_comm_hook(power.hook());
        const auto gradient = net.b.weight.grad().to_vector<float>();
        for (int k = 3; k < 6; ++k) {
          if (k > 3) ddp.zero_grad();
          loss_of(net, rank, k, of_a).backward();
          CHECK(kept_of(power, "b.") == before);
          CHECK(kept_of(power, "a.") != of_both);
          const Tensor grad = net.b.weight.grad();
          REQUIRE(grad.defined() == (k == 3));
          if (grad.defined()) CHECK(grad.to_vector<float>() == gradient);
        }
      });
    }
  }
}

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
