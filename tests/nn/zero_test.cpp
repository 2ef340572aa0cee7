// SPDX-License-Identifier: Apache-2.0
// ZeroRedundancyOptimizer steps as the optimizer by itself, over DDP and over ShardedDDP: against
// one process in f64, and against DDP with that optimizer bit for bit; and where ranks differ, all
// are told.
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/parallel/local_sgd.h>
#include <peal/tests/difference.h>
#include <peal/tests/errors.h>

#include <cmath>

#include "zero_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

constexpr int steps = 20, rows = 12;  // of a step's batch, which worlds 1 to 4 divide

// The parameters after that many steps of one process, or of a rank of the group.
enum class Stage { plain, zero1, zero2 };

template <class Model>
std::vector<std::vector<double>> trained(const MakeOptimizer& make, DType dtype, const Group* group,
                                         Stage stage, bool with_extras) {
  manual_seed(1);
  Model model;
  model.to(dtype);
  const auto [optimizer, shards] =
      make(stage == Stage::plain ? nullptr : group, model.named_parameters());
  std::unique_ptr<DDP> ddp;
  nn::ShardedDDP* sharded = nullptr;
  if (stage == Stage::zero2) {
    auto made = std::make_unique<nn::ShardedDDP>(model, *shards);
    sharded = made.get();
    ddp = std::move(made);
  } else if (group != nullptr) {
    ddp = std::make_unique<DDP>(model, *group);
  }
  nn::LRScheduler scheduler(*optimizer, nn::linear_lr(1, 0.1, steps));
  nn::GradScaler scaler({.init_scale = 1024}, group == nullptr ? Group() : *group);
  const int world = group == nullptr ? 1 : group->world(), part = rows / world;
  const int begin = group == nullptr ? 0 : part * group->rank();
  nn::Module& called = ddp ? static_cast<nn::Module&>(*ddp) : model;
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    const Tensor loss = small_loss(called, model, step, begin, begin + part);
    if (!with_extras) {
      loss.backward();
      optimizer->step();
      continue;
    }
    scaler.scale(step == 7 ? loss * std::numeric_limits<double>::infinity() : loss).backward();
    scaler.unscale_(*optimizer);
    if (sharded != nullptr) {
      sharded->clip_grad_norm_(0.05);
    } else {
      nn::clip_grad_norm_(optimizer->parameters(), 0.05);
    }
    scaler.step(*optimizer);
    scaler.update();
    scheduler.step();
  }
  return values_of(model.named_parameters());
}

double distance(const std::vector<std::vector<double>>& a,
                const std::vector<std::vector<double>>& b) {
  double most = 0;
  REQUIRE(a.size() == b.size());
  for (std::size_t p = 0; p < a.size(); ++p) {
    REQUIRE(a[p].size() == b[p].size());
    for (std::size_t i = 0; i < a[p].size(); ++i) {
      most = larger(most, std::abs(a[p][i] - b[p][i]));
    }
  }
  return most;
}

template <class Model>
void compare_runs(const std::string& name, const MakeOptimizer& make, bool with_extras = false) {
  const auto alone = trained<Model>(make, DType::f64, nullptr, Stage::plain, with_extras);
  for (const int world : {1, 2, 3, 4}) {
    ranks(world, [&](const Group& group, int rank) {
      const auto plain = trained<Model>(make, DType::f32, &group, Stage::plain, with_extras);
      for (const Stage stage : {Stage::zero1, Stage::zero2}) {
        CAPTURE(name);
        CAPTURE(world);
        CAPTURE(static_cast<int>(stage));
        const auto wide = trained<Model>(make, DType::f64, &group, stage, with_extras);
        const auto shared = trained<Model>(make, DType::f32, &group, stage, with_extras);
        if (rank != world - 1) continue;
        CHECK(distance(wide, alone) <= 1e-10);
        // A reduction to one rank may add in another order than one to all, and the norm of all
        // gradients is added up by ranks.
        if (stage == Stage::zero1 || (world <= 2 && !with_extras)) CHECK(shared == plain);
      }
    });
  }
}

}  // namespace

TEST_CASE("each optimizer trains as in one process, and as with DDP bit for bit") {
  for (const auto& [name, make] : optimizers()) compare_runs<SmallNet>(name, make);
}

TEST_CASE("a GPT whose embedding is tied, too") {
  for (const auto& [name, make] : optimizers()) {
    if (name == "SGD" || name == "AdamW, groups") compare_runs<SmallGpt>(name, make);
  }
}

TEST_CASE("a schedule, a scaler that leaves a step out and clipping go with it") {
  compare_runs<SmallNet>("AdamW, groups", adamw_of_groups, true);
}

TEST_CASE("SGD by hand, before and behind a state that was loaded") {
  two([](const Group& group, int) {
    const NamedTensors list = leaves({{1}, {1}});
    const nn::SGDOptions options{.lr = 0.1, .momentum = 0.9};
    for (const auto& [name, p] : list) fill_(p.detach(), 1);
    const auto step = [&](nn::Optimizer& optimizer) {
      for (const auto& [name, p] : list) {
        p.zero_grad();
        p.grad_slot().accumulate(full({1}, 1.0));
      }
      optimizer.step();
      return list[0].second.item<float>() == list[1].second.item<float>()
                 ? list[0].second.item<float>()
                 : 0.0F;
    };
    Zero<nn::SGD> first(group, list, options);
    CHECK(step(first) == doctest::Approx(0.9));
    NamedTensors state;
    for (const int to : {0, 1}) {  // each gets it once
      first.consolidate_state_dict(to);
      if (group.rank() == to) state = first.state_dict();
    }
    Zero<nn::SGD> second(group, list, options);
    second.load_state_dict(state);
    CHECK(step(second) == doctest::Approx(0.71));
  });
}

TEST_CASE("a closure is run once, and its loss comes back") {
  two([](const Group& group, int) {
    const NamedTensors list = leaves({{2, 3}, {3}});
    Zero<nn::SGD> optimizer(group, list, nn::SGDOptions{.lr = 0.5});
    int calls = 0;
    const Tensor loss = optimizer.step([&] {
      ++calls;
      give_gradients(list, 1);
      return full({}, 3.0);
    });
    CHECK(calls == 1);
    CHECK(loss.item<float>() == 3);
    CHECK(same_everywhere(list[0].second, group));
  });
}

TEST_CASE(
    "frozen, thawed and added parameters, and some without elements, step as in one process") {
  for (const int world : {2, 3}) {
    ranks(world, [](const Group& group, int) {
      const std::vector<Shape> shapes{{2, 3}, {0}, {5}, {4, 2}, {3}, {0, 2}, {7}};
      const nn::AdamWOptions options{.lr = 0.1};
      const auto run = [&](auto&& make) {
        const NamedTensors list = leaves(shapes);
        const auto slice = [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
          return nn::Parameters(NamedTensors(list.begin() + begin, list.begin() + end));
        };
        list[2].second.set_requires_grad(false);
        auto optimizer = make(slice(0, 4));
        const auto step = [&](int number, std::ptrdiff_t count) {
          NamedTensors trained;
          for (const auto& each : NamedTensors(list.begin(), list.begin() + count)) {
            if (each.second.requires_grad()) trained.push_back(each);
          }
          give_gradients(trained, number);
          optimizer->step();
        };
        step(0, 4);
        list[2].second.set_requires_grad();
        step(1, 4);
        list[0].second.set_requires_grad(false);  // and has the gradient of the last step still
        step(2, 4);
        optimizer->add_group(slice(4, 7), {.lr = 0.2, .weight_decay = 0});
        step(3, 7);
        list[0].second.zero_grad();
        step(4, 7);
        return std::pair(list, std::move(optimizer));
      };
      const auto [mine, shared] = run([&](const nn::Parameters& p) {
        return std::make_unique<Zero<nn::AdamW>>(group, p, options);
      });
      const auto [alone, plain] =
          run([&](const nn::Parameters& p) { return std::make_unique<nn::AdamW>(p, options); });
      check_same(mine, alone);
      shared->consolidate_state_dict();
      if (group.rank() == 0) check_same(shared->state_dict(), plain->state_dict());
      CHECK(shared->placement().counts == std::vector<std::int64_t>{6, 0, 1, 8, 3, 0, 7});
    });
  }
}

TEST_CASE("masters of parameters in low precision keep their digits when owners send") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    two([&](const Group& group, int) {
      const std::vector<Shape> shapes{{2, 3}, {5}, {4}};
      const nn::AdamOptions options{.lr = 1e-3};  // a bf16 of 2 does not see it
      const NamedTensors mine = leaves(shapes, dtype), alone = leaves(shapes, dtype);
      Zero<nn::Adam> shared(group, mine, options);
      nn::Adam plain(alone, options);
      for (int step = 0; step < 30; ++step) {
        give_gradients(mine, step);
        give_gradients(alone, step);
        shared.step();
        plain.step();
      }
      check_same(mine, alone);
      shared.consolidate_state_dict();
      if (group.rank() == 0) check_same(shared.state_dict(), plain.state_dict());
    });
  }
}

TEST_CASE("where ranks differ, all get an error that says in what") {
  const auto make = [](const Group& group, const std::vector<Shape>& shapes, double lr) {
    Zero<nn::SGD> optimizer(group, leaves(shapes), nn::SGDOptions{.lr = lr});
  };
  const std::string shapes = failure([&](const Group& group, int rank) {
    make(group, {{2}, {3 + rank}}, 0.1);
  });
  check_has(shapes, "[zero] the optimizer is 'parameter b f32 [3], owner 1' on rank 0");
  check_has(shapes, "[4]");
  const std::string lr = failure([&](const Group& group, int rank) {
    make(group, {{2}, {3}}, 0.1 + rank);
  });
  check_has(lr, "lr 0.1");
  check_has(lr, "lr 1.1");

  // Later settings are compared with each step.
  const std::string later = failure([](const Group& group, int rank) {
    const NamedTensors list = leaves({{2}, {3}});
    Zero<nn::SGD> optimizer(group, list, nn::SGDOptions{.lr = 0.1});
    give_gradients(list, 0);
    optimizer.step();
    optimizer.set_lr(rank == 0 ? 0.1 : 0.2);
    give_gradients(list, 1);
    optimizer.step();
    group.barrier().wait();
  });
  check_has(later, "lr 0.1");
  check_has(later, "lr 0.2");

  const std::string frozen = failure([](const Group& group, int rank) {
    const NamedTensors list = leaves({{2}, {3}});
    Zero<nn::SGD> optimizer(group, list, nn::SGDOptions{.lr = 0.1});
    give_gradients(list, 0);
    if (rank == 1) {
      list[0].second.zero_grad();
      list[0].second.set_requires_grad(false);
    }
    optimizer.step();
    group.barrier().wait();
  });
  check_has(frozen, "step 1 of the optimizer");
}

TEST_CASE("what fails in one rank's step is told to all") {
  struct Failing : nn::SGD {
    using nn::SGD::SGD;
    bool fails = false;

   protected:
    void update(const Alike& alike, std::span<const double> settings) override {
      PEAL_CHECK(!fails, "no such kernel");
      nn::SGD::update(alike, settings);
    }
  };
  std::vector<std::string> errors(3);
  const auto run = [&](const Group& group, int rank) {
    errors[static_cast<std::size_t>(rank)] = error_of([&] {
      const NamedTensors list = leaves({{2}, {3}, {4}});
      Zero<Failing> optimizer(group, list, nn::SGDOptions{.lr = 0.1});
      optimizer.fails = rank == 1;
      give_gradients(list, 0);
      optimizer.step();
    });
  };
  check_has(error_of([&] { ranks(3, run); }), "no such kernel");
  for (const std::string& error : errors) {
    check_has(error, "[zero] rank 1: SGD: step 1 failed");
    check_has(error, "no such kernel");
  }
}

TEST_CASE("with gradients of each rank's own owners would step alone, which is an Error on all") {
  for (const bool shared : {true, false}) {
    std::string said;
    const auto train = [&](const Group& group, int rank) {
      SmallNet model;
      DDP ddp(model, group);
      ddp.register_comm_hook(nn::post_localSGD_hook({group, {}, {.start_localSGD_iter = 2}}));
      const auto optimizer =
          optimizer_of<nn::SGD>(shared ? &group : nullptr, nn::Parameters(model.named_parameters()),
                                nn::SGDOptions{.lr = 0.1})
              .optimizer;
      for (int step = 0; step < 6; ++step) {
        optimizer->zero_grad();
        small_loss(ddp, model, step, rank, rank + 1).backward();
        optimizer->step();
      }
    };
    if (shared) {
      said = failure(train);
      check_has(said, "a ZeroRedundancyOptimizer steps by the owner's gradients alone");
    } else {
      two(train);
    }
  }
}
