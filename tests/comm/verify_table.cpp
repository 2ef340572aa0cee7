// SPDX-License-Identifier: Apache-2.0
// Every schedule of the table is right, says the verifier; and so says the judge, on a sample.
#include "judge.h"
#include "schedule_worlds.h"

#include <doctest/doctest.h>
#include <peal/comm/algorithms/meeting.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/schedule/plan.h>
#include <peal/comm/verify/verify.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace peal::comm {
namespace {

Aliasing aliasing(bool in_place) { return in_place ? Aliasing::in_place : Aliasing::out_of_place; }

TEST_CASE("the verifier accepts every schedule of the table") {
  int verified = 0;
  for (const Entry& entry : all_algorithms()) {
    for (int p = 1; p <= 16; ++p) {
      if (!entry.supports(p)) continue;
      for (const std::int64_t n : {0, 1, p - 1, p, p + 1, 97}) {
        for (const World& world : testing::worlds_for(entry, p, n)) {
          const auto programs = world.programs(entry);
          for (const bool in_place : testing::in_place_or_not(entry.what)) {
            const Verdict verdict = verify(world.problem(), programs, aliasing(in_place));
            CHECK_MESSAGE(verdict.ok, world.text(entry, true), ": ", verdict.why);
            ++verified;
          }
        }
      }
    }
  }
  CHECK(verified > 30000);
}

TEST_CASE("schedules that say so make every sum at once, on every rank") {
  int combinations = 0;
  for (const Entry& entry : all_algorithms()) {
    if (!entry.at_once) continue;
    for (int p = 1; p <= 16; ++p) {
      if (!entry.supports(p)) continue;
      for (const std::int64_t n : {0, 1, p - 1, p + 1, 97}) {
        for (const World& world : testing::worlds_for(entry, p, n)) {
          for (const Program& program : world.programs(entry)) {
            INFO(world.text(entry, true));
            Plan plan(program);
            CHECK_NOTHROW(plan.sum_at_once(p));
            CHECK(plan.at_once);
            combinations += static_cast<int>(plan.combinations.size());
          }
        }
      }
    }
  }
  CHECK(combinations > 10000);
}

TEST_CASE("a sum that is made in parts is not one that is made at once") {
  const auto refused = [](const Program& program, int world) {
    Plan plan(program);
    CHECK(!plan.at_once);
    CHECK_THROWS_WITH_AS(
        plan.sum_at_once(world),
        ("a program has a reduction that is not of all " + std::to_string(world) + " ranks at once")
            .c_str(),
        std::invalid_argument);
  };
  const World ring{Collective::all_reduce, 3, 0, {12}};
  refused(ring.programs(*find(Collective::all_reduce, "ring"))[0], 3);
  Program halves;
  add_combination(halves, {of(1, 0, room({0, 4}))}, {in({0, 4}), in({4, 4})});
  refused(halves, 4);
  Plan(halves).sum_at_once(2);
}

TEST_CASE("nodes need not go the same way: between them all send alike") {
  int verified = 0;
  const char* const ways[] = {"hierarchical_direct", "hierarchical_staged"};
  for (const int size : {2, 3}) {
    for (const bool dealt_out : {false, true}) {
      for (int p = 2; p <= 9; ++p) {
        for (const std::int64_t n : {0, 1, p + 1, 97}) {
          for (const int shift : {0, 1}) {
            World world{Collective::all_reduce, p, 0, {n}};
            world.nodes = nodes_of(p, size, dealt_out);
            world.chunk = 7;
            std::vector<Program> programs;
            for (int r = 0; r < p; ++r) {
              const int node = world.nodes.node[static_cast<std::size_t>(r)];
              const Entry* const entry = find(world.what, ways[(node + shift) % 2]);
              programs.push_back(plan(*entry, world.problem(r)));
            }
            for (const bool in_place : {false, true}) {
              const Verdict verdict = verify(world.problem(), programs, aliasing(in_place));
              CHECK_MESSAGE(verdict.ok, world.text(*find(world.what, ways[shift]), true), ": ",
                            verdict.why);
              ++verified;
              if (p > 5 || n > p + 1) continue;
              const auto judgement = testing::judge(world.problem(), programs, in_place, 17);
              CHECK_MESSAGE(judgement.good, judgement.why);
            }
          }
        }
      }
    }
  }
  CHECK(verified == 2 * 2 * 8 * 4 * 2 * 2);
}

TEST_CASE("the way that another one goes on by begins with the same round") {
  for (const Entry& entry : one_sided_algorithms()) {
    if (entry.otherwise.empty()) continue;
    for (int p = 2; p <= 9; ++p) {
      for (const World& world : testing::worlds_for(entry, p, 97)) {
        const auto programs = world.programs(entry);
        const auto others = world.programs(*find(entry.what, entry.otherwise));
        for (std::size_t r = 0; r < programs.size(); ++r) {
          INFO(world.text(entry, true));
          REQUIRE(programs[r].rounds.empty() == others[r].rounds.empty());
          if (programs[r].rounds.empty()) continue;
          CHECK(programs[r].rounds.front() == others[r].rounds.front());
        }
      }
    }
  }
}

TEST_CASE("alignment moves the cuts and nothing else") {
  for (const Entry& entry : all_algorithms()) {
    if (entry.what != Collective::all_reduce) continue;
    for (int p = 1; p <= 9; ++p) {
      if (!entry.supports(p)) continue;
      World world{entry.what, p, 0, {97}};
      world.align = 8;
      const Verdict verdict = verify(world.problem(), world.programs(entry), Aliasing::in_place);
      CHECK_MESSAGE(verdict.ok, world.text(entry, true), ": ", verdict.why);
    }
  }
}

TEST_CASE("the judge agrees") {
  for (const Entry& entry : all_algorithms()) {
    for (const int p : {1, 2, 3, 5, 6, 8}) {
      if (!entry.supports(p)) continue;
      if (entry.one_sided && p > 3 && p != 5) continue;  // each is judged in many more runs
      for (const std::int64_t n : {1, p + 1, 3 * p}) {
        for (const World& world : testing::worlds_for(entry, p, n)) {
          const auto programs = world.programs(entry);
          for (const bool in_place : testing::in_place_or_not(entry.what)) {
            const auto judgement = testing::judge(world.problem(), programs, in_place, 17);
            CHECK_MESSAGE(judgement.good, world.text(entry, true), ": ", judgement.why);
          }
        }
      }
    }
  }
}

TEST_CASE(
    "one tree for all elements: recursive doubling has it, the block-wise algorithms do not") {
  const World world{Collective::all_reduce, 6, 0, {24}};
  const auto one_tree = [&](std::string_view name) {
    for (const Entry& entry : all_algorithms()) {
      if (entry.what != world.what || entry.name != name) continue;
      const Verdict verdict = verify(world.problem(), world.programs(entry), Aliasing::in_place);
      REQUIRE(verdict.ok);
      return verdict.one_tree;
    }
    FAIL("no such algorithm");
    return false;
  };
  CHECK(one_tree("recursive_doubling"));
  CHECK(one_tree("binomial"));
  CHECK(one_tree("direct_slices"));
  CHECK_FALSE(one_tree("ring"));
  CHECK_FALSE(one_tree("circulant"));
}

}  // namespace
}  // namespace peal::comm
