// SPDX-License-Identifier: Apache-2.0
// Outer optimizers of local SGD: the published numbers, states, and ranks that differ.
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/parallel/local_sgd.h>
#include <peal/nn/parallel/outer_step.h>
#include <peal/tests/errors.h>

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace peal;
using comm::run_ranks;
using Group = comm::ProcessGroup;
using testing::error_of;

namespace {

Tensor parameter(double value, DType dtype = DType::f64) {
  const Tensor x = Tensor::zeros({3}, dtype);
  fill_(x, value);
  return Tensor(x).set_requires_grad();
}
double first_of(const Tensor& x) {
  return x.dtype() == DType::f64 ? x.to_vector<double>()[0]
                                 : static_cast<double>(x.to_vector<float>()[0]);
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("DiLoCo goes on from where all began, along how far they came on average") {
  run_ranks(2, [](const Group& group) {
    const Tensor x = parameter(group.rank() == 0 ? 1 : 5);
    nn::DiLoCo outer(group, std::vector<Tensor>{x}, {.sync_every = 2});
    CHECK(first_of(x) == 1);  // rank 0's
    const auto went_to = [&](double rank_0, double rank_1) {
      fill_(x.detach(), 99);
      outer.step();  // the first of two says nothing
      CHECK(first_of(x) == 99);
      fill_(x.detach(), group.rank() == 0 ? rank_0 : rank_1);
      outer.step();
    };
    went_to(0.8, 0.6);
    CHECK(first_of(x) == doctest::Approx(0.601).epsilon(1e-12));
    went_to(0.601 - 0.3, 0.601 - 0.1);
    CHECK(first_of(x) == doctest::Approx(0.1649).epsilon(1e-12));
    CHECK(outer.step_count() == 4);
  });
}

TEST_CASE("what is frozen neither decays nor goes on by its momentum, and is averaged") {
  run_ranks(2, [](const Group& group) {
    const auto number = [](double value) {
      return Tensor(full({1}, value, DType::f64)).set_requires_grad();
    };
    const Tensor moves = number(1), frozen = number(3), late = number(1);
    frozen.set_requires_grad(false);
    nn::DiLoCo outer(group, {moves, frozen, late},
                     {.sync_every = 1,
                      .outer = {.lr = 1, .momentum = 0.5, .weight_decay = 0.1, .nesterov = true}});
    const double own = group.rank() == 0 ? 0.25 : 0.75;
    for (const Tensor& each : {moves, late}) fill_(each.detach(), own);
    outer.step();
    CHECK(frozen.item<double>() == 3);
    const double before = late.item<double>();
    CHECK(before == moves.item<double>());
    late.set_requires_grad(false);
    outer.step();
    CHECK(late.item<double>() == before);
    CHECK(moves.item<double>() < before);
    fill_(late.detach(), own);
    outer.step();
    CHECK(late.item<double>() == doctest::Approx(0.5).epsilon(1e-12));
  });
}

TEST_CASE("an outer rate of 1 without momentum is plain averaging, of any number of ranks") {
  for (int world = 1; world <= 4; ++world) {
    run_ranks(world, [](const Group& group) {
      const Tensor x = parameter(1, DType::f32);
      nn::DiLoCo outer(group, std::vector<Tensor>{x}, {.sync_every = 1, .outer = {.lr = 1}});
      for (int k = 0; k < 3; ++k) {
        fill_(x.detach(), 2 * group.rank() + k);
        outer.step();
        CHECK(first_of(x) == group.world() - 1 + k);
      }
    });
  }
}

TEST_CASE("slow momentum, and a rate that changes between two averages") {
  run_ranks(2, [](const Group& group) {
    const Tensor x = parameter(1);
    nn::SlowMomentum outer(group, std::vector<Tensor>{x}, {.slowmo_freq = 1});
    const auto went_to = [&](double mean, double lr) {
      fill_(x.detach(), mean + (group.rank() == 0 ? 0.25 : -0.25));
      outer.step(lr);
    };
    went_to(0.7, 0.1);  // u = 3
    CHECK(first_of(x) == doctest::Approx(0.7).epsilon(1e-12));
    went_to(0.5, 0.1);  // u = 3.5
    CHECK(first_of(x) == doctest::Approx(0.35).epsilon(1e-12));
    went_to(0.30, 0.05);  // u = 1.75 + 1
    CHECK(first_of(x) == doctest::Approx(0.35 - 0.05 * 2.75).epsilon(1e-12));
    // Where all have none of it, nothing is written, and the group goes on.
    CHECK(contains(error_of([&] { outer.step(0); }), "above 0 in step 4, which averages, got 0"));
    CHECK(first_of(x) == doctest::Approx(0.35 - 0.05 * 2.75).epsilon(1e-12));
    group.barrier().wait();
  });
}

TEST_CASE("by themselves slow momentum averages every 48 steps, and DiLoCo every 500") {
  run_ranks(2, [](const Group& group) {
    const auto averages_in = [&](const Tensor& x, auto step) {
      fill_(x.detach(), group.rank());
      for (int number = 1;; ++number) {
        step();
        if (first_of(x) != group.rank()) return number;
        PEAL_CHECK(number < 1000, "no average");
      }
    };
    const Tensor x = parameter(4), y = parameter(4);
    nn::SlowMomentum slow(group, std::vector<Tensor>{x});
    CHECK(averages_in(x, [&] { slow.step(0.1); }) == 48);
    CHECK(first_of(x) == doctest::Approx(0.5).epsilon(1e-12));
    nn::DiLoCo outer(group, std::vector<Tensor>{y});
    CHECK(averages_in(y, [&] { outer.step(); }) == 500);
    CHECK(first_of(y) == doctest::Approx(4 - 0.7 * 1.9 * 3.5).epsilon(1e-12));
  });
}

TEST_CASE("a rate of 0 in a step that averages nothing, as of a warm-up") {
  run_ranks(2, [](const Group& group) {
    const Tensor x = parameter(1);
    nn::SlowMomentum outer(group, std::vector<Tensor>{x}, {.slowmo_freq = 2});
    outer.step(0);
    fill_(x.detach(), 0.7);
    outer.step(0.1);
    CHECK(first_of(x) == doctest::Approx(0.7).epsilon(1e-12));
  });
}

TEST_CASE("ranks whose rates differ are told") {
  const std::string error = error_of([] {
    run_ranks(2, [](const Group& group) {
      const Tensor x = parameter(1);
      nn::SlowMomentum outer(group, std::vector<Tensor>{x}, {.slowmo_freq = 1});
      outer.step(group.rank() == 0 ? 0.1 : 0.05);
    });
  });
  CHECK(contains(error, "lr 0.1)"));
  CHECK(contains(error, "lr 0.05)"));
  const std::string none = error_of([] {
    run_ranks(2, {.deadline = std::chrono::minutes(1)}, [](const Group& group) {
      const Tensor x = parameter(1);
      nn::SlowMomentum outer(group, std::vector<Tensor>{x}, {.slowmo_freq = 1});
      outer.step(group.rank() == 0 ? 0.1 : 0);
    });
  });
  CHECK(contains(none, "lr 0.1)"));
  CHECK(contains(none, "lr 0)"));
}

TEST_CASE("a parameter in low precision keeps in f32 where all began") {
  run_ranks(2, [](const Group& group) {
    const Tensor x = parameter(1, DType::bf16);
    nn::DiLoCo outer(group, NamedTensors{{"w", x}}, {.sync_every = 1, .outer = {.lr = 0.001}});
    for (int k = 0; k < 8; ++k) {  // each of these steps is lost in bf16
      fill_(x.detach(), 0);
      outer.step();
    }
    const Tensor begin = outer.state_dict()[1].second;
    CHECK(begin.dtype() == DType::f32);
    CHECK(begin.to_vector<float>()[0] == doctest::Approx(std::pow(0.999, 8)).epsilon(1e-5));
  });
}

TEST_CASE("a run that stops between two averages goes on as if it had not") {
  run_ranks(2, [](const Group& group) {
    const auto train = [&](int stop) {
      Tensor x = parameter(1);
      std::optional<nn::DiLoCo> outer;
      outer.emplace(group, NamedTensors{{"w", x}}, nn::DiLoCoOptions{.sync_every = 2});
      for (int k = 0; k < 7; ++k) {
        if (k == stop) {
          const NamedTensors saved = outer->state_dict();
          NamedTensors copies;
          for (const auto& [name, tensor] : saved) copies.emplace_back(name, tensor.clone());
          const Tensor last = x.detach().clone();
          x = parameter(7);
          outer.emplace(group, NamedTensors{{"w", x}}, nn::DiLoCoOptions{.sync_every = 2});
          outer->load_state_dict(copies);
          x.detach().copy_(last);
        }
        fill_(x.detach(), first_of(x) * 0.5 + group.rank() + k);
        outer->step();
      }
      return x.to_vector<double>();
    };
    const auto whole = train(-1);
    for (const int stop : {1, 2, 3, 6}) CHECK(train(stop) == whole);
  });
}

TEST_CASE("after loading the options are those of the program") {
  run_ranks(2, [](const Group& group) {
    const auto train = [&](double saved) {  // with that momentum, until it is saved
      const Tensor x = parameter(1);
      const auto made = [&](double momentum) {
        return std::make_unique<nn::DiLoCo>(
            group, NamedTensors{{"w", x}},
            nn::DiLoCoOptions{.sync_every = 1, .outer = {.lr = 1, .momentum = momentum}});
      };
      auto outer = made(saved);
      const auto step = [&](double by) {
        fill_(x.detach(), first_of(x) - by);
        outer->step();
      };
      step(0.5);  // the first momentum is the distance, whatever it is multiplied by
      const NamedTensors state = outer->state_dict();
      for (const auto& [name, tensor] : state) CHECK_FALSE(contains(name, "groups."));
      outer = made(0.25);
      outer->load_state_dict(state);
      step(0.5);
      return first_of(x);
    };
    CHECK(train(0.75) == train(0.25));
    CHECK(train(0.75) == doctest::Approx(0.5 - 0.5 - 0.25 * 0.5).epsilon(1e-12));
  });
}

TEST_CASE("ranks that loaded states that differ are told") {
  run_ranks(3, [](const Group& group) {
    const Tensor x = parameter(1);
    nn::DiLoCo outer(group, NamedTensors{{"w", x}}, {.sync_every = 1});
    fill_(x.detach(), 0.5);
    outer.step();
    NamedTensors state;
    for (const auto& [name, tensor] : outer.state_dict()) state.emplace_back(name, tensor.clone());
    for (const auto& [name, tensor] : state) {
      if (name == "outer.0.momentum_buffer" && group.rank() == 2) fill_(tensor, 7);
    }
    outer.load_state_dict(state);
    const std::string error = error_of([&] { outer.step(); });
    CHECK(contains(error, "[outer] DiLoCo is 'outer.0.momentum_buffer of digest"));
    CHECK(contains(error, "load the same state, on every rank"));
  });
}

TEST_CASE("ranks that go on from different steps of a period are told") {
  run_ranks(2, [](const Group& group) {
    nn::DiLoCo outer(group, NamedTensors{{"w", parameter(1)}}, {.sync_every = 4});
    NamedTensors early;
    for (int step = 1; step <= 2; ++step) {
      outer.step();
      if (step > 1 && group.rank() == 0) continue;
      early.clear();
      for (const auto& [name, tensor] : outer.state_dict()) {
        early.emplace_back(name, tensor.clone());
      }
    }
    outer.load_state_dict(early);  // of step 1 on rank 0, of step 2 on rank 1
    const std::string error = error_of([&] {
      for (int step = 0; step < 3; ++step) outer.step();
    });
    CHECK(contains(error, "loaded at step 1' on rank 0 and 'loaded at step 2' on rank 1"));
  });
}

TEST_CASE("pieces of a sharded model are averaged by nobody") {
  run_ranks(2, [](const Group& group) {
    const Tensor piece = parameter(1);
    piece.storage()->mark_piece();
    CHECK(contains(error_of([&] {
                     nn::DiLoCo outer(group, NamedTensors{{"w", piece}}, {});
                   }),
                   "ranks of one sharded model have no models of their own"));
    nn::PeriodicModelAverager averager(group, {.period = 1});
    CHECK(contains(error_of([&] { averager.average_parameters({piece}); }),
                   "ranks of one sharded model have no models of their own"));
  });
}

TEST_CASE("ranks that differ, and options without sense, are refused by name") {
  run_ranks(3, [](const Group& group) {
    const Tensor x = parameter(1);
    const auto made = [&](std::int64_t every) {
      return error_of(
          [&] { nn::DiLoCo outer(group, std::vector<Tensor>{x}, {.sync_every = every}); });
    };
    CHECK(contains(made(0), "DiLoCo: on all ranks: expected a period of 1 step or more, got 0"));
    // What one rank alone has wrong, the others are told.
    CHECK(contains(made(group.rank() == 2 ? 0 : 4), "DiLoCo: rank 2: expected a period of 1 step"));
    const std::vector<Tensor> odd{Tensor::zeros({3}, group.rank() == 1 ? DType::i64 : DType::f32)};
    CHECK(contains(error_of([&] { nn::SlowMomentum(group, odd); }),
                   "SlowMomentum: rank 1: expected parameters of a floating type, got i64 [3]"));
    const std::string error = made(group.rank() == 1 ? 3 : 4);
    CHECK(contains(error, "period 3"));
    CHECK(contains(error, "rank 1"));
    nn::DiLoCo outer(group, std::vector<Tensor>{x}, {.sync_every = 1});
    NamedTensors state = outer.state_dict();
    state.pop_back();
    state.emplace_back("begin.7", x);
    CHECK(contains(error_of([&] { outer.load_state_dict(state); }), "begin.7"));
  });
}
