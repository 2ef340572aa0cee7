// SPDX-License-Identifier: Apache-2.0
// What a step of DDP would take with other buckets: by hand, by the closed form of the ring, and of
// a step that was measured.
#include <peal/comm/algorithms/world.h>

#include <limits>
#include <string>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Four parameters of 256 KiB; gradients come from the last to the first.
std::vector<nn::ParameterSpec> four() {
  std::vector<nn::ParameterSpec> all;
  for (const char* name : {"a", "b", "c", "d"}) all.push_back({name, {65536}});
  return all;
}
const nn::StepProfile profile{.before = 3, .backward = 4, .after = 1, .ready = {4, 3, 2, 1}};
constexpr std::int64_t kib = 1024;

double one_second_a_parameter(double bytes) { return bytes / (256 * kib); }

comm::Machine machine(int ranks) {
  return {.nodes = comm::nodes_of(ranks, 1),
          .inside = {1e-6, 1e-9},
          .between = {1e-6, 1e-9},
          .stragglers = {}};
}

}  // namespace

TEST_CASE("buckets go one after the other, and what backward does not hide is exposed") {
  const auto plan = nn::plan_buckets(four(), {kib, kib});
  REQUIRE(plan.size() == 4);
  const nn::WhatIf each = nn::what_if(profile, plan, one_second_a_parameter);
  CHECK(each.communication == 4);
  CHECK(each.exposed == 1);  // d in 1 to 2, c in 2 to 3, b in 3 to 4, a in 4 to 5
  CHECK(each.step == 9);
  const nn::WhatIf slow = nn::what_if(profile, plan, [](double) { return 2.0; });
  CHECK(slow.exposed == 5);  // from 1 to 9
  const nn::WhatIf free = nn::what_if(profile, plan, [](double) { return 0.0; });
  CHECK(free.exposed == 0);
  CHECK(free.step == profile.step());

  const auto one = nn::plan_buckets(four(), {1 << 30, 1 << 30});
  REQUIRE(one.size() == 1);
  CHECK(nn::what_if(profile, one, one_second_a_parameter).exposed == 4);

  // What got no gradient is there when backward is over.
  nn::StepProfile unused = profile;
  unused.ready[3] = std::numeric_limits<double>::quiet_NaN();
  CHECK(nn::what_if(unused, plan, one_second_a_parameter).exposed == 4);
  CHECK(profile.scaled(0.5).ready == std::vector<double>{2, 1.5, 1, 0.5});
  CHECK(profile.scaled(0.5).step() == 4);
}

TEST_CASE("a table over bucket caps marks the shortest step") {
  const auto table = nn::what_if(four(), profile, one_second_a_parameter,
                                 {{kib, kib}, {kib, 512 * kib}, {1 << 30, 1 << 30}});
  REQUIRE(table.size() == 3);
  CHECK(table[0].buckets == 4);
  CHECK(table[1].buckets == 3);  // d, then b and c, then a
  CHECK(table[1].exposed == 2);  // d in 1 to 2, c and b in 3 to 5, a in 5 to 6
  CHECK(table[2].buckets == 1);
  const std::string text = nn::describe(table);
  CHECK(text.find("9000.000*") != std::string::npos);
  CHECK(std::ranges::count(text, '*') == 1);
  CHECK(nn::what_if(four(), profile, one_second_a_parameter).size() > 4);
  CHECK_THROWS_WITH(nn::what_if(four(), {.backward = 1, .ready = {1}}, one_second_a_parameter),
                    "what_if: expected times of 4 gradients, got 1");
}

TEST_CASE("an all_reduce costs what the simulator says") {
  for (const int ranks : {2, 4, 7}) {
    const auto cost = nn::simulated_cost(machine(ranks), "ring", 28 * kib, 28 * 64 * kib);
    for (const double bytes : {28.0 * kib, 28.0 * 8 * kib, 28.0 * 40 * kib, 28.0 * 64 * kib}) {
      const double rounds = 2.0 * (ranks - 1);
      CHECK(cost(bytes) == doctest::Approx(rounds * (1e-6 + bytes / ranks * 1e-9)));
    }
  }
  CHECK(nn::simulated_cost(machine(1), "ring", kib, kib)(kib) == 0);
  CHECK_THROWS_WITH(nn::simulated_cost(machine(2), "rign", kib, kib),
                    "what_if: there is no all_reduce by 'rign'");
}

TEST_CASE("of a step that was measured") {
  two([](const Group& group, int) {
    Mlp model;
    DDP off(model, group);
    CHECK_THROWS_WITH(off.what_if(one_second_a_parameter),
                      "what_if: no step was measured yet; set DDPOptions::measure_every");
  });
  two([](const Group& group, int rank) {
    Mlp model;
    DDP ddp(model, group, {.measure_every = 1});
    loss(ddp, rank).backward();
    const auto table = ddp.what_if([](double) { return 1.0; });
    REQUIRE(!table.empty());
    for (const nn::WhatIf& each : table) {
      CHECK(each.buckets == 1);
      CHECK(each.communication == 1);
      CHECK(each.step >= each.exposed);
      CHECK(each.exposed > 0.5);
    }
  });
}
