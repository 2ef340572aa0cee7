// SPDX-License-Identifier: Apache-2.0
// What a step of DDP would take with other buckets: by hand, by the closed form of the ring, and of
// a step that was measured.
#include <peal/comm/algorithms/world.h>
#include <peal/nn/layers/layers.h>

#include <algorithm>
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
                                 {.caps = {{kib, kib}, {kib, 512 * kib}, {1 << 30, 1 << 30}}});
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

TEST_CASE("buckets are in the order in which gradients come, and as large as what travels") {
  nn::StepProfile from_first = profile;
  from_first.ready = {1, 2, 3, 4};
  CHECK(nn::arrival_of(from_first) == std::vector<int>{0, 1, 2, 3});
  CHECK(nn::arrival_of(profile) == std::vector<int>{3, 2, 1, 0});
  const std::vector<nn::BucketCaps> caps{{kib, kib}};
  const auto table = [&](const nn::WhatIfOptions& options) {
    return nn::what_if(four(), from_first, one_second_a_parameter, options).at(0);
  };
  CHECK(table({.caps = caps}).exposed == 1);  // a in 1 to 2, .. d in 4 to 5
  // Of a wrapper that was told another order: the first is there last.
  CHECK(table({.caps = caps, .order = {3, 2, 1, 0}}).exposed == 4);
  CHECK(table({.caps = caps, .travels_in = DType::bf16}).communication == 2);
  CHECK(table({.caps = caps, .travels_in = DType::bf16}).exposed == 0.5);
  CHECK(table({.caps = caps, .travels_in = DType::f64}).communication == 4);
  // What got no gradient comes last.
  from_first.ready[1] = std::numeric_limits<double>::quiet_NaN();
  CHECK(nn::arrival_of(from_first) == std::vector<int>{0, 2, 3});
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

namespace {

// Used from the last to the first of its registration.
struct Backwards : nn::Module {
  nn::Linear c = add("c", nn::Linear(300, 2)), b = add("b", nn::Linear(250, 300)),
             a = add("a", nn::Linear(400, 250));
  Tensor forward(const Tensor& x) override { return c(b(a(x))); }
};

// The table by plans that have the order of `names`.
std::vector<nn::WhatIf> by_order(const DDP& ddp, const std::vector<std::string>& names,
                                 const nn::CollectiveCost& cost) {
  std::vector<nn::ParameterSpec> specs;
  std::vector<int> order(names.size());
  for (const auto& [name, tensor] : ddp.named_parameters()) {
    order.at(static_cast<std::size_t>(std::ranges::find(names, name) - names.begin())) =
        static_cast<int>(specs.size());
    specs.push_back({name, tensor.shape()});
  }
  return nn::what_if(specs, nn::profile_of(ddp.get_ddp_logging_data()), cost, {.order = order});
}

bool same_plans(const std::vector<nn::WhatIf>& a, const std::vector<nn::WhatIf>& b) {
  return std::ranges::equal(a, b, {}, &nn::WhatIf::communication, &nn::WhatIf::communication);
}

}  // namespace

TEST_CASE("a wrapper's table is of the plans that it would make") {
  const auto square = [](double bytes) { return bytes * bytes; };  // tells plans apart
  for (const bool learns : {true, false}) {
    two([&](const Group& group, int) {
      Backwards model;
      DDP ddp(model, group, {.find_unused_parameters = !learns, .measure_every = 1});
      for (int i = 0; i < 2; ++i) sum(ddp(full({2, 400}, 1.0))).backward();
      const auto arrived = by_order(ddp, ddp.arrival(), square);
      const auto registered = by_order(ddp, start_order(model), square);
      REQUIRE(!same_plans(arrived, registered));
      CHECK(same_plans(ddp.what_if(square), learns ? arrived : registered));
    });
  }
  two([](const Group& group, int rank) {
    const auto bytes = [](double bytes) { return bytes; };
    Mlp model, rounded;
    DDP plain(model, group, {.measure_every = 1});
    DDP half(rounded, group,
             {.mixed_precision = {.reduce_dtype = DType::bf16}, .measure_every = 1});
    loss(plain, rank).backward();
    loss(half, rank).backward();
    const double all = plain.what_if(bytes).at(0).communication;
    CHECK(half.what_if(bytes).at(0).communication == all / 2);
    CHECK(plain.what_if(bytes, DType::u8).at(0).communication == all / 4);
  });
}
