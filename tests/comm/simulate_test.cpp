// SPDX-License-Identifier: Apache-2.0
// The simulator agrees with the cost model where that is exact, and shows what it leaves out:
// shared wires, stragglers, jitter, large worlds.
#include "schedule_worlds.h"

#include <doctest/doctest.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/simulate/calibration.h>
#include <peal/comm/simulate/simulate.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <vector>

namespace peal::comm {
namespace {

constexpr int f32 = 4;
constexpr double alpha = 2e-6, beta = 1e-9, gamma = 0.25e-9;

Machine flat(int world) {
  return {.nodes = single_node(world),
          .inside = {alpha, beta},
          .between = {alpha, beta},
          .reduce = gamma,
          .stragglers = {}};
}

Simulation run(const World& world, std::string_view name, const Machine& machine,
               Record record = Record::nothing) {
  const Entry* entry = find(world.what, name);
  REQUIRE(entry != nullptr);
  return simulate(
      world.ranks, [&](int rank) { return plan(*entry, world.problem(rank)); }, f32, machine,
      record);
}

double model(const Cost& cost) {
  return double(cost.rounds) * alpha +
         f32 * (double(cost.sent) * beta + double(cost.reduced) * gamma);
}

TEST_CASE("where all ranks keep step, a simulated run takes what the cost model says") {
  for (const Entry& entry : algorithms()) {
    const bool uneven =
        has_root(entry.what) || entry.name == "binomial" || entry.name == "double_tree";
    if (uneven) continue;
    const bool several_messages = entry.name == "bidirectional_ring" || entry.name == "swing";
    for (const int p : {1, 2, 4, 8, 16}) {
      const World world = testing::worlds_for(entry, p, 64 * p).front();
      const ClosedForm form = entry.costs(world.problem());
      REQUIRE(form.exact);
      CAPTURE(world.text(entry, true));
      const Simulation simulation = run(world, entry.name, flat(p));
      if (several_messages) {  // while one is added, the next arrives
        CHECK(simulation.seconds <= model(form.most) * (1 + 1e-9));
        CHECK(simulation.seconds >= model(form.most) - f32 * gamma * double(form.most.reduced));
      } else {
        CHECK(simulation.seconds == doctest::Approx(model(form.most)).epsilon(1e-9));
      }
      CHECK(simulation.finish.size() == static_cast<std::size_t>(p));
    }
  }
}

TEST_CASE("a measured rate is a line through its points") {
  const Rate rate({{100, 2e-6}, {200, 6e-6}, {400, 8e-6}});
  CHECK(rate.seconds(1) == 2e-6);
  CHECK(rate.seconds(150) == doctest::Approx(4e-6));
  CHECK(rate.seconds(400) == doctest::Approx(8e-6));
  CHECK(rate.seconds(4000) == doctest::Approx(80e-6));
  CHECK(Rate(0.5).seconds(3) == 1.5);
  using Points = std::vector<Rate::Point>;
  for (const Points& wrong : {Points{}, {{0, 1}}, {{2, 1}, {1, 1}}, {{1, -1.0}}}) {
    CHECK_THROWS_AS(Rate{wrong}, std::invalid_argument);
  }
}

TEST_CASE("a machine of measured points takes what they say") {
  Machine machine = flat(2);
  machine.inside = {0, Rate({{64, 1e-6}, {1 << 20, 300e-6}})};
  machine.reduce = Rate({{64, 5e-6}, {1 << 20, 50e-6}});
  machine.start = 7e-6;
  const World world{Collective::all_reduce, 2, 0, {1 << 18}};  // one exchange of a MiB, one sum
  CHECK(run(world, "recursive_doubling", machine).seconds == doctest::Approx(357e-6));
  machine.bus = Rate({{64, 0}, {1 << 20, 100e-6}});  // the second message waits for the wire
  CHECK(run(world, "recursive_doubling", machine).seconds == doctest::Approx(457e-6));
}

TEST_CASE("trees wait for their ports: a root sends its messages one after the other") {
  const std::int64_t n = 1000;
  const double message = n * f32 * beta;
  for (const int p : {2, 4, 8, 16}) {
    const World world{Collective::broadcast, p, 0, {n}};
    const double rounds = std::bit_width(static_cast<unsigned>(p)) - 1;
    CHECK(run(world, "binomial", flat(p)).seconds == doctest::Approx(rounds * (alpha + message)));
    const World gather{Collective::gather, p, 0,
                       testing::counts_for(Collective::gather, p, n * p, false)};
    CHECK(run(gather, "direct", flat(p)).seconds == doctest::Approx(alpha + (p - 1) * message));
  }
}

TEST_CASE("a pipeline of k chunks down a chain: p-2+k rounds") {
  World world{Collective::broadcast, 6, 1, {1200}};
  for (const int k : {1, 4, 12}) {
    world.chunk = 1200 / k;
    const double round = alpha + double(world.chunk) * f32 * beta;
    CHECK(run(world, "chain", flat(6)).seconds == doctest::Approx((4 + k) * round));
  }
}

TEST_CASE("two ports halve the bytes' time of the bidirectional ring, not of the ring") {
  const World world{Collective::all_reduce, 8, 0, {1 << 20}};
  Machine machine = flat(8);
  machine.reduce = 0;
  const double one = run(world, "bidirectional_ring", machine).seconds;
  const double ring = run(world, "ring", machine).seconds;
  CHECK(one == doctest::Approx(ring));
  machine.ports = 2;
  CHECK(run(world, "ring", machine).seconds == doctest::Approx(ring));
  const double latencies = 14 * alpha;
  CHECK(run(world, "bidirectional_ring", machine).seconds - latencies ==
        doctest::Approx((one - latencies) / 2));
}

TEST_CASE("each message of a round needs its gap") {
  Machine machine = flat(8);
  const World world{Collective::all_reduce, 8, 0, {64}};
  const double before = run(world, "swing", machine).seconds;
  const double ring = run(world, "ring", machine).seconds;
  machine.inside.gap = 1e-6;
  CHECK(run(world, "ring", machine).seconds == doctest::Approx(ring + 14 * 1e-6));
  CHECK(run(world, "swing", machine).seconds > before + 6.5 * 1e-6);
}

TEST_CASE("recursive doubling meets Rabenseifner where the formula says, within a step of two") {
  for (const int p : {4, 8, 16, 64}) {
    const double levels = std::bit_width(static_cast<unsigned>(p)) - 1, share = (p - 1.0) / p;
    const double formula =
        levels * alpha / ((levels - 2 * share) * beta + (levels - share) * gamma);
    double crossing = 0;
    for (std::int64_t bytes = 256; crossing == 0 && bytes < 1 << 24; bytes *= 2) {
      const World world{Collective::all_reduce, p, 0, {bytes / f32}};
      const bool met = run(world, "rabenseifner", flat(p)).seconds <
                       run(world, "recursive_doubling", flat(p)).seconds;
      if (met) crossing = double(bytes);
    }
    CHECK(crossing >= formula);
    CHECK(crossing <= 2 * formula);
  }
}

TEST_CASE("what the ranks of a node share slows them together, and two levels help") {
  World world{Collective::all_reduce, 16, 0, {1 << 18}};
  world.nodes = nodes_of(16, 4, false);
  Machine machine = flat(16);
  machine.nodes = world.nodes;
  machine.inside = {0.3e-6, 0.1e-9};
  const double free = run(world, "recursive_doubling", machine).seconds;
  machine.adapter = beta;  // four ranks, but the wire of one
  const double shared = run(world, "recursive_doubling", machine).seconds;
  CHECK(shared > 2 * free);
  const Simulation levels = run(world, "hierarchical", machine);
  CHECK(levels.seconds < shared / 2);
  const Simulation circulant = run(world, "circulant", machine);
  CHECK(levels.bytes_between < circulant.bytes_between);
  // Each of 4 nodes sends 2n * 3/4, the lower bound.
  CHECK(levels.bytes_between == doctest::Approx(4 * 2 * 0.75 * (1 << 18) * f32));
  machine.bus = beta;
  CHECK(run(world, "hierarchical", machine).seconds > levels.seconds);
}

TEST_CASE("stragglers and jitter, by seed") {
  const World world{Collective::all_reduce, 8, 0, {4096}};
  Machine machine = flat(8);
  const double before = run(world, "ring", machine).seconds;
  machine.stragglers = {{3, 1e-3, 1}};
  const double late = run(world, "ring", machine).seconds;
  CHECK(late > 1e-3);
  CHECK(late <= before + 1e-3 + 1e-12);
  machine.stragglers = {{3, 0, 4}};
  CHECK(run(world, "ring", machine).seconds > 2 * before);
  machine.stragglers.clear();
  machine.jitter = 0.5;
  const double jittered = run(world, "ring", machine).seconds;
  CHECK(jittered > before);
  CHECK(jittered == run(world, "ring", machine).seconds);
  machine.seed = 2;
  CHECK(jittered != run(world, "ring", machine).seconds);
}

TEST_CASE("a timeline has both sides of each message, in order and inside the run") {
  const World world{Collective::all_reduce, 5, 0, {50}};
  const Simulation simulation = run(world, "ring", flat(5), Record::timeline);
  CHECK(simulation.messages == 5 * 8);
  CHECK(simulation.timeline.world == 5);
  CHECK(simulation.timeline.activities.size() == 5 * (1 + 2 * 8));
  double ends = 0;
  for (const Activity& a : simulation.timeline.activities) {
    CHECK(a.begin <= a.moves);
    CHECK(a.moves <= a.end);
    CHECK(a.end <= simulation.seconds);
    CHECK((a.kind == Kind::copy) == (a.peer == nobody));
    ends = std::max(ends, a.end);
  }
  CHECK(ends == simulation.seconds);
  CHECK(run(world, "ring", flat(5)).timeline.activities.empty());
}

TEST_CASE("what does not fit is refused") {
  const auto two = [](Program first, Program second) {
    simulate(
        2, [&](int rank) { return rank == 0 ? first : second; }, f32, flat(2));
  };
  const Step one = send(1, in({0, 1}));
  CHECK_THROWS_WITH_AS(two({0, {{one}}}, {}),
                       "simulate: rank 0 never ends its round 0; verify the programs first",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(
      two({0, {{one}}}, {0, {{recv(0, out({0, 2}))}}}),
      "simulate: rank 1 expects 2 elements from rank 0, got 1; verify the programs "
      "first",
      std::invalid_argument);
  CHECK_THROWS_AS(two({0, {{send(2, in({0, 1}))}}}, {}), std::invalid_argument);
  CHECK_THROWS_AS(simulate(
                      3, [](int) { return Program{}; }, f32, flat(2)),
                  std::invalid_argument);
}

TEST_CASE("a thousand ranks") {
  const int p = 1024;
  World world{Collective::all_reduce, p, 0, {1 << 20}};
  world.nodes = nodes_of(p, 8, false);
  Machine machine = flat(p);
  machine.nodes = world.nodes;
  const Entry& ring = *find(Collective::all_reduce, "ring");
  CHECK(run(world, "ring", machine).seconds ==
        doctest::Approx(model(ring.costs(world.problem()).most)));
  for (const char* name : {"circulant", "double_tree", "hierarchical"}) {
    CHECK(run(world, name, machine).seconds < run(world, "binomial", machine).seconds);
  }
}

TEST_CASE("calibration finds the numbers that made the points") {
  std::vector<Measured> points;
  const auto measure = [&](double a, double b, double c) {
    points.clear();
    for (const char* name : {"ring", "circulant", "recursive_doubling"}) {
      const Entry& entry = *find(Collective::all_reduce, name);
      for (std::int64_t n = 64; n <= 1 << 22; n *= 8) {
        const World world{Collective::all_reduce, 8, 0, {n}};
        const Cost cost = entry.costs(world.problem()).most;
        Measured point{double(cost.rounds), f32 * double(cost.sent), f32 * double(cost.reduced), 1};
        point.seconds = model_seconds({a, b, c, 0, 0}, point);
        points.push_back(point);
      }
    }
  };
  measure(alpha, beta, gamma);
  const Calibration exact = calibrate(points);
  CHECK(exact.latency == doctest::Approx(alpha));
  CHECK(exact.per_byte == doctest::Approx(beta));
  CHECK(exact.reduce_per_byte == doctest::Approx(gamma));
  CHECK(exact.worst_error < 1e-6);
  for (std::size_t i = 0; i < points.size(); ++i) points[i].seconds *= i % 2 == 0 ? 1.1 : 0.9;
  const Calibration noisy = calibrate(points);
  CHECK(noisy.latency == doctest::Approx(alpha).epsilon(0.1));
  CHECK(noisy.worst_error < 0.2);
  CHECK(noisy.median_error > 0.05);
  measure(alpha, beta, 0);
  CHECK(calibrate(points).reduce_per_byte < 1e-6 * gamma);
  // The ring alone cannot tell sending from adding: the model is right all the same.
  measure(alpha, beta, gamma);
  points.resize(points.size() / 3);
  const Calibration ring = calibrate(points);
  CHECK(ring.worst_error < 1e-6);
  CHECK_THROWS_AS(calibrate({}), std::invalid_argument);
  CHECK_THROWS_AS(calibrate(std::vector<Measured>{{1, 1, 1, 0}}), std::invalid_argument);
}

}  // namespace
}  // namespace peal::comm
