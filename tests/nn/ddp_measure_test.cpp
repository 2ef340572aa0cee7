// SPDX-License-Identifier: Apache-2.0
// Where the time of a step of DDP went: what get_ddp_logging_data() and the trace say of buckets,
// of who was last and of what held a bucket back. Ranks are made late by waiting for each other, so
// no check depends on how long anything takes.
#include <peal/comm/draw/timeline.h>
#include <peal/comm/record/training_steps.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/compress_hooks.h>

#include <doctest/doctest.h>
#include <peal/tests/folder.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// A step whose gradients come late on rank 1: when rank 0 has sent so many buckets, and some more
// time has gone.
void late_step(DDP& ddp, const std::atomic<int>& sent, int buckets, int rank) {
  const Tensor out = ddp(full({2, 3}, 1.0));
  Tensor y;
  {
    const NoGrad guard;
    y = out.clone();
  }
  y = record("gate", y, {out}, [&sent, buckets, rank](const Tensor& g) {
    while (rank == 1 && sent < buckets) std::this_thread::yield();
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return g;
  });
  sum(y * y).backward();
}

// Says when rank 0 has sent a bucket.
nn::CommHook telling(const Group& group, std::atomic<int>& sent) {
  return [group, &sent, hook = nn::average_gradients(group)](nn::GradBucket& bucket) {
    comm::Work work = hook(bucket);
    if (group.rank() == 0) ++sent;
    return work;
  };
}

constexpr double nearly = 1e-6;  // seconds: what rounding of times may leave

void check_times(const nn::DDPLoggingData& data, std::size_t buckets) {
  CHECK(data.buckets.size() == buckets);
  CHECK(data.forward_compute_time >= 0);
  CHECK(data.backward_compute_time >= 0);
  CHECK(data.backward_comm_time >= 0);
  CHECK(data.backward_compute_comm_overlap_time <= data.backward_comm_time + nearly);
  CHECK(data.largest_exposed_comm_time >= data.exposed_comm_time);
  double exposed = 0;
  for (const nn::BucketTimes& bucket : data.buckets) {
    CHECK(bucket.bytes > 0);
    for (const double phase : {bucket.queue, bucket.copy_in, bucket.slowest, bucket.wire,
                               bucket.copy_out, bucket.exposed}) {
      CHECK(phase >= -nearly);
    }
    exposed += bucket.exposed;
  }
  CHECK(exposed == doctest::Approx(data.exposed_comm_time));
}

}  // namespace

TEST_CASE("times of each bucket: phases, the last rank, and the parameter that came last") {
  std::atomic<int> sent = 0;
  two([&](const Group& group, int rank) {
    Mlp model;
    DDP ddp(model, group, {.buckets = apart, .measure_every = 1});
    ddp.register_comm_hook(telling(group, sent));
    CHECK(ddp.get_ddp_logging_data().step == 0);
    late_step(ddp, sent, 1, rank);
    const nn::DDPLoggingData& data = ddp.get_ddp_logging_data();
    CHECK(data.step == 1);
    check_times(data, 4);
    // What came last in a bucket of one is that one.
    const NamedTensors parameters = ddp.named_parameters();
    for (std::size_t b = 0; b < data.buckets.size(); ++b) {
      const int p = ddp.reducer().buckets()[b].entries.at(0).parameter;
      CHECK(data.buckets[b].held_back_by == parameters[static_cast<std::size_t>(p)].first);
      CHECK(data.buckets[b].ready ==
            doctest::Approx(data.gradient_ready[static_cast<std::size_t>(p)]));
    }
    // Rank 0 was in the first bucket's collective before rank 1 was.
    CHECK(data.buckets[0].last_rank == 1);
    if (rank == 1) CHECK(data.buckets[0].slowest == 0);
    if (rank == 0) CHECK(data.buckets[0].slowest > 0);
    CHECK(ddp.explain().find("rank 1, by") != std::string::npos);
  });
}

TEST_CASE("a step is measured where it is its turn, and trains as if it were not") {
  std::map<int, std::vector<float>> weights[2];
  for (const int measured : {0, 1}) {
    std::mutex mutex;
    two([&](const Group& group, int rank) {
      Mlp model;
      DDP ddp(model, group, {.measure_every = measured * 2});
      nn::SGD optimizer(ddp.parameters(), {.lr = 0.125});
      std::vector<std::uint64_t> steps;
      for (int i = 0; i < 5; ++i) {
        optimizer.zero_grad();
        loss(ddp, rank + i).backward();
        optimizer.step();
        steps.push_back(ddp.get_ddp_logging_data().step);
      }
      const auto wanted = measured != 0 ? std::vector<std::uint64_t>{0, 2, 2, 4, 4}
                                        : std::vector<std::uint64_t>(5, 0);
      CHECK(steps == wanted);
      const std::lock_guard lock(mutex);
      for (const Tensor& p : ddp.parameters()) {
        const auto values = p.to_vector<float>();
        weights[measured][rank].insert(weights[measured][rank].end(), values.begin(), values.end());
      }
    });
  }
  CHECK(weights[0] == weights[1]);
  CHECK(failure([](const Group& group, int) {
          Mlp model;
          DDP(model, group, {.measure_every = -1});
        }).find("measure_every: expected 0 or more steps, got -1") != std::string::npos);
}

TEST_CASE("what a hook computes is copying") {
  two([](const Group& group, int rank) {
    Mlp model;
    DDP ddp(model, group, {.measure_every = 1});
    ddp.register_comm_hook(nn::fp16_compress_hook(group));
    loss(ddp, rank).backward();
    const nn::DDPLoggingData& data = ddp.get_ddp_logging_data();
    check_times(data, 1);
    CHECK(data.buckets[0].copy_in > 0);
    CHECK(data.buckets[0].copy_out > 0);
  });
}

TEST_CASE("a traced run has its ops and its buckets") {
  const peal::testing::Folder folder;
  std::atomic<int> sent = 0;
  comm::run_ranks(2, {.deadline = std::chrono::minutes(1), .trace = folder.path},
                  [&](const Group& group) {
                    manual_seed(1);
                    Mlp model;
                    DDP ddp(model, group, {.buckets = apart});
                    ddp.register_comm_hook(telling(group, sent));
                    late_step(ddp, sent, 1, group.rank());
                    late_step(ddp, sent, 0, group.rank());  // begins with a meeting about the order
                  });
  const comm::MeasuredRun run = comm::read_measured(folder.path);
  const auto steps = comm::training_steps(run);
  REQUIRE(steps.size() == 2);
  for (const comm::TrainingStep& step : steps) {
    CHECK(step.begin() < step.end());
    REQUIRE(step.ranks.size() == 2);
    for (const comm::StepRank& rank : step.ranks) {
      REQUIRE(rank.buckets.size() == 4);
      CHECK(std::ranges::any_of(rank.ops, [](const auto& op) { return op.backward; }));
      CHECK(std::ranges::any_of(rank.ops, [](const auto& op) { return !op.backward; }));
      for (const comm::StepBucket& bucket : rank.buckets) {
        CHECK(bucket.time.collectives.size() == 1);
        CHECK(bucket.slowest >= 0);
        CHECK(bucket.wire() >= -nearly);
        CHECK(bucket.phases.all() >= 0);
      }
    }
  }
  const comm::TrainingStep& first = steps[0];
  CHECK(first.ranks[first.last_rank(0)].rank == 1);
  CHECK(first.ranks[0].buckets[0].held_by == "3.bias");
  CHECK(first.ranks[0].buckets[0].slowest > 0);
  CHECK(first.ranks[1].buckets[0].slowest == 0);
  comm::Timeline all = comm::timeline(run);
  comm::add_training(all, run, steps);
  const auto json = nlohmann::json::parse(comm::chrome_trace(all));
  int phases = 0, ops = 0;
  for (const auto& event : json["traceEvents"]) {
    phases += event["ph"] == "b" && event["name"] == "waits for the slowest rank" ? 1 : 0;
    ops += event["ph"] == "X" && event.value("cat", "") == "op" ? 1 : 0;
  }
  CHECK(phases >= 1);
  CHECK(ops > 4);
  const std::string drawn = svg(comm::picture(steps[0]), "a step");
  for (const char* said : {">bucket 3</text>", "last 3.bias", ">backward</text>",
                           "waits for the slowest rank", "rank 1"}) {
    CHECK(drawn.find(said) != std::string::npos);
  }
}
