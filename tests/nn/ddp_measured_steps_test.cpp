// SPDX-License-Identifier: Apache-2.0
// Which steps are measured, and of what: wrappers side by side, steps that failed, forwards without
// a step, and more collectives than there is room for. Times are compared with those that the test
// takes around them, so no check depends on how long anything takes.
#include <peal/comm/group/group_body.h>
#include <peal/comm/group/recording.h>
#include <peal/comm/record/recorder.h>
#include <peal/comm/record/training_steps.h>
#include <peal/nn/layers/layers.h>

#include <doctest/doctest.h>
#include <peal/tests/folder.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

double now() { return static_cast<double>(comm::Recorder::now()) * 1e-9; }
void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

constexpr double rounding = 1e-6;  // seconds: what rounding of times may leave

// x, and f() in backward.
Tensor at_backward(const Tensor& x, std::function<void()> f) {
  const Tensor y = x.detach().clone();
  return record("gate", y, {x}, [f = std::move(f)](const Tensor& g) {
    f();
    return g;
  });
}

Tensor squares_of(const Tensor& y) { return sum(y * y); }

// Uses its second layer where it is told to, as copies are.
struct Two : nn::Module {
  nn::Linear a = add("a", nn::Linear(3, 2)), b = add("b", nn::Linear(3, 2));
  std::shared_ptr<bool> both = std::make_shared<bool>(false);
  Tensor forward(const Tensor& x) override { return *both ? a(x) + b(x) : a(x); }
};

// Says when it began, and that its rank has come to it.
nn::CommHook waiting(const Group& group, double& begin, std::atomic<bool>& came) {
  return [&begin, &came, hook = nn::average_gradients(group)](nn::GradBucket& bucket) {
    begin = now();
    comm::Work work = hook(bucket);
    came = true;
    work.wait();
    return work;
  };
}

// Collectives without a message, which are recorded as others are: no rank waits for another, which
// on a busy machine takes minutes for so many.
void run_many(const Group& group, int calls) {
  const auto plan = std::make_shared<const comm::Plan>(
      comm::Program{.scratch = 0, .rounds = {{comm::copy(comm::out({0, 2}), comm::in({0, 2}))}}});
  const Tensor data = Tensor::zeros({2});
  for (int i = 0; i < calls; ++i) group.run(comm::Collective::all_reduce, plan, data, data).wait();
}

}  // namespace

TEST_CASE("wrappers of one backward have their own times") {
  std::atomic<bool> came[2]{};  // to the second one's
  two([&](const Group& group, int rank) {
    Mlp a, b;
    DDP first(a, group, {.measure_every = 1}), second(b, group, {.measure_every = 1});
    double begin = 0, later_begin = 0, over = 0;
    std::atomic<bool> came_to_first{false};
    first.register_comm_hook(waiting(group, begin, came_to_first));
    second.register_comm_hook(waiting(group, later_begin, came[rank]));
    const Tensor later = at_backward(second(full({2, 3}, 1.0)), [&] {
      over = now();
      while (rank == 1 && !came[0]) std::this_thread::yield();
      if (rank == 1) rest();
    });
    const Tensor earlier = first(full({2, 3}, 1.0));  // made last, it is visited first
    (squares_of(later) + squares_of(earlier)).backward();
    REQUIRE(begin > 0);
    REQUIRE(over > begin);
    REQUIRE(later_begin > over);
    const nn::DDPLoggingData &of_first = first.get_ddp_logging_data(),
                             &of_second = second.get_ddp_logging_data();
    REQUIRE(of_first.step == 1);
    REQUIRE(of_second.step == 1);
    REQUIRE(of_first.buckets.size() == 1);
    // It was over when the second one's had yet to begin.
    CHECK(of_first.buckets[0].slowest + of_first.buckets[0].wire <= over - begin + rounding);
    CHECK(of_second.buckets[0].last_rank == 1);
  });
}

TEST_CASE("a wrapper whose buckets go last is measured to its end") {
  two([](const Group& group, int rank) {
    Two a, b;
    const nn::DDPOptions options{.find_unused_parameters = true, .measure_every = 1};
    DDP first(a, group, options), second(b, group, options);
    for (int i = 0; i < 2; ++i) {
      (squares_of(second(full({2, 3}, 1. * rank))) + squares_of(first(full({2, 3}, 1. * rank))))
          .backward();
      for (const DDP* const each : {&first, &second}) {
        const nn::DDPLoggingData& data = each->get_ddp_logging_data();
        REQUIRE(data.buckets.size() == 1);
        const nn::BucketTimes& bucket = data.buckets[0];
        CHECK(bucket.copy_in + bucket.slowest + bucket.wire + bucket.copy_out > 0);
      }
    }
  });
}

TEST_CASE("in a trace, too, buckets of equal names are told apart") {
  const Folder folder;
  comm::run_ranks(
      2, {.deadline = std::chrono::minutes(1), .trace = folder.path}, [](const Group& group) {
        manual_seed(1);
        Mlp a, b;
        DDP first(a, group), second(b, group);
        (squares_of(second(full({2, 3}, 1.0))) + squares_of(first(full({2, 3}, 1.0)))).backward();
      });
  const auto steps = comm::training_steps(comm::read_measured(folder.path));
  REQUIRE(steps.size() == 2);
  for (const comm::TrainingStep& step : steps) {
    REQUIRE(step.ranks.size() == 2);
    for (const comm::StepRank& rank : step.ranks) {
      REQUIRE(rank.buckets.size() == 1);
      CHECK(rank.buckets[0].time.collectives.size() == 1);
    }
  }
}

TEST_CASE("a step that failed leaves nothing to the next") {
  two([](const Group& group, int rank) {
    Two model;
    DDP ddp(model, group, {.measure_every = 1});
    CHECK_THROWS_AS(loss(ddp, rank).backward(), Error);
    CHECK(comm::body_of(group).lane->recorder() == nullptr);
    // Nor to a wrapper that is not measured.
    Mlp another;
    DDP other(another, group);
    loss(other, rank).backward();
    CHECK(other.get_ddp_logging_data().step == 0);
    rest();
    *model.both = true;
    const double begin = now();
    loss(ddp, rank).backward();
    const double took = now() - begin;
    const nn::DDPLoggingData& data = ddp.get_ddp_logging_data();
    REQUIRE(data.step == 2);
    CHECK(data.forward_compute_time <= took + rounding);
  });
}

TEST_CASE("a forward that no step follows is no part of the next step's") {
  two([](const Group& group, int rank) {
    Mlp model;
    DDP ddp(model, group, {.measure_every = 1});
    const auto without_graph = [&] {
      const NoGrad guard;
      loss(ddp, rank);
    };
    const auto without_backward = [&] { loss(ddp, rank); };
    for (const auto& forward :
         std::vector<std::function<void()>>{without_graph, without_backward}) {
      forward();
      rest();
      const double begin = now();
      const Tensor y = loss(ddp, rank);
      forward();
      y.backward();
      const double took = now() - begin;
      CHECK(ddp.get_ddp_logging_data().forward_compute_time > 0);
      CHECK(ddp.get_ddp_logging_data().forward_compute_time <= took + rounding);
    }
    // Several before a backward are one.
    const Tensor one = loss(ddp, rank);
    const double between = now();
    rest();
    const double rested = now() - between;
    (one + loss(ddp, rank)).backward();
    CHECK(ddp.get_ddp_logging_data().forward_compute_time >= rested);
  });
}

namespace {

void check_not_recorded(const DDP& ddp) {
  const nn::DDPLoggingData& data = ddp.get_ddp_logging_data();
  REQUIRE(data.buckets.size() == 1);
  for (const double time : {data.buckets[0].queue, data.buckets[0].copy_in, data.buckets[0].wire,
                            data.buckets[0].slowest, data.buckets[0].copy_out,
                            data.backward_comm_time, data.backward_compute_comm_overlap_time}) {
    CHECK(std::isnan(time));
  }
  CHECK(data.buckets[0].last_rank == -1);
  CHECK(data.backward_compute_time > 0);
  CHECK(data.exposed_comm_time >= 0);
  CHECK(nn::describe(data).find("not measured") != std::string::npos);
}

}  // namespace

TEST_CASE("what had no room is said to be not measured") {
  two([](const Group& group, int rank) {
    Mlp model;
    DDP ddp(model, group, {.measure_every = 1});
    bool many = true;
    ddp.register_comm_hook([&, hook = nn::average_gradients(group)](nn::GradBucket& bucket) {
      if (many) run_many(group, 5000);
      return hook(bucket);
    });
    loss(ddp, rank).backward();
    check_not_recorded(ddp);
    many = false;
    loss(ddp, rank).backward();
    CHECK(!std::isnan(ddp.get_ddp_logging_data().buckets[0].wire));
  });
}

TEST_CASE("a recording whose records another one takes over says so") {
  two([](const Group& group, int) {
    comm::Recording first(group), second(group), third(group);
    first.begin();
    second.begin();  // beside it
    run_many(group, 2500);
    CHECK(second.end().whole);
    third.begin();  // with new memory, as the first one's is half full
    group.barrier().wait();
    const auto found = first.end();
    CHECK_FALSE(found.whole);
    const auto last = third.end();
    CHECK(last.whole);
    CHECK(last.collectives.size() == 1);
  });
}

TEST_CASE("a trace that is full takes no notes any more") {
  const Folder folder;
  comm::run_ranks(2, {.deadline = std::chrono::minutes(1), .trace = folder.path},
                  [](const Group& group) {
                    manual_seed(1);
                    Mlp model;
                    DDP ddp(model, group);
                    loss(ddp, 1).backward();
                    CHECK(!std::isnan(ddp.get_ddp_logging_data().buckets.at(0).wire));
                    run_many(group, 1 << 16);
                    for (int i = 0; i < 3; ++i) loss(ddp, 1).backward();
                    check_not_recorded(ddp);
                  });
  const comm::MeasuredRun run = comm::read_measured(folder.path);
  CHECK(run.dropped > 0);
  CHECK(run.training.size() == 2);
  CHECK(run.buckets.size() == 2);
}
