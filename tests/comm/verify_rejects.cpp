// SPDX-License-Identifier: Apache-2.0
// Each fault that the verifier knows, made by hand, and what it says about it: where, what was
// expected, what came.
#include "judge.h"
#include "schedule_worlds.h"

#include <doctest/doctest.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/verify/verify.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace peal::comm {
namespace {

using Programs = std::vector<Program>;

std::string why(const World& world, const Programs& programs,
                Aliasing aliasing = Aliasing::out_of_place) {
  return verify(world.problem(), programs, aliasing).why;
}

bool contains(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE("expected '", part, "' in '", text, "'");
  return found;
}

// A ring of 3 ranks, 2 elements a block. Rank 0: round 0 copies, rounds 1 and 2 reduce, 3 and 4
// gather.
const World ring_world{Collective::all_reduce, 3, 0, {6}};

std::string damaged(const std::function<void(Programs&)>& damage) {
  Programs programs = ring_world.programs(*find(Collective::all_reduce, "ring"));
  REQUIRE(why(ring_world, programs).empty());
  damage(programs);
  return why(ring_world, programs);
}

TEST_CASE("steps that are not well formed") {
  const auto step = [](auto change) {
    return damaged(
        [&](Programs& p) { change(p[0].rounds[1][1]); });  // recv_reduce from 2 into out[4, 6)
  };
  const std::string where = "rank 0, round 1, step 1 (recv_reduce from 2 into out[4, 6)): ";
  CHECK(contains(step([](Step& s) { s.peer = 3; }),
                 "expected a peer among the other ranks below 3, got 3"));
  CHECK(contains(step([](Step& s) { s.peer = 0; }),
                 "expected a peer among the other ranks below 3, got 0"));
  CHECK(contains(step([](Step& s) { s.dst.at = 5; }),
                 "expected a destination inside out[0, 6), got out[5, 7)"));
  CHECK(contains(step([](Step& s) { s.dst.at = -1; }), "inside out[0, 6), got out[-1, 1)"));
  CHECK(contains(step([](Step& s) { s.dst.count = -2; }), "of at least 1 elements, got -2"));
  CHECK(contains(step([](Step& s) { s.dst.count = 0; }), "of at least 1 elements, got 0"));
  CHECK(contains(step([](Step& s) { s.dst.buffer = Buffer::in; }), "got in, which is read-only"));
  CHECK(contains(step([](Step& s) { s.dst.buffer = Buffer::scratch; }), "inside scratch[0, 0)"));
  CHECK(contains(step([](Step& s) { s.dst.owner = 1; }),
                 "in the rank's own memory, got one of rank 1"));
  CHECK(contains(step([](Step& s) { s.src.at = 3; }),
                 where + "expected the unused source to be empty"));
  CHECK(contains(step([](Step& s) { s = signal(3); }), "expected a peer among the other ranks"));
  CHECK(contains(step([](Step& s) { s = await(0); }), "expected a peer among the other ranks"));
  CHECK(contains(
      damaged([](Programs& p) { p[1].rounds[1][0].dst.count = 1; }),
      "rank 1, round 1, step 0 (send to 2 of out[2, 4)): expected the unused destination"));
  CHECK(contains(damaged([](Programs& p) { p[2].rounds[0][0].peer = 1; }),
                 "expected no peer in a local step, got 1"));
  CHECK(contains(damaged([](Programs& p) { p[2].rounds[0][0].src.count = 5; }),
                 "expected 6 elements, got a source of 5"));
  CHECK(contains(damaged([](Programs& p) { p[2].scratch = -1; }),
                 "rank 2: expected scratch of at least 0"));
  CHECK(contains(damaged([](Programs& p) { p.pop_back(); }),
                 "expected 3 programs, one a rank, got 2"));
}

TEST_CASE("concurrent steps that touch the same elements") {
  CHECK(contains(damaged([](Programs& p) { p[0].rounds[1][1].dst.at = 1; }),
                 "some that step 0 reads in the same round: rank 0, round 1, step 0 (send to 1 of "
                 "out[0, 2))"));
  CHECK(contains(damaged([](Programs& p) { p[0].rounds[0].push_back(p[0].rounds[0][0]); }),
                 "writes in the same round"));
  // Two readers are no fault, and neither is a copy onto itself.
  const World world{Collective::broadcast, 3, 0, {4}};
  const Block all{0, 4};
  const Programs programs{{0, {{copy(out(all), in(all)), send(1, in(all)), send(2, in(all))}}},
                          {0, {{recv(0, out(all))}}},
                          {0, {{recv(0, out(all))}}}};
  CHECK(why(world, programs) == "");
  CHECK(why(world, programs, Aliasing::in_place) == "");
}

TEST_CASE("what is right out of place can be wrong in place") {
  const World world{Collective::all_reduce, 2, 0, {4}};
  const Block all{0, 4};
  Programs programs;
  for (int rank = 0; rank < 2; ++rank) {
    programs.push_back(
        {0, {{send(1 - rank, in(all)), recv(1 - rank, out(all))}, {reduce(out(all), in(all))}}});
  }
  CHECK(why(world, programs) == "");
  CHECK(testing::judge(world.problem(), programs, false, 1).good);
  CHECK(contains(why(world, programs, Aliasing::in_place), "reads in the same round"));
  CHECK_FALSE(testing::judge(world.problem(), programs, true, 1).good);
}

TEST_CASE("messages that do not meet") {
  CHECK(contains(damaged([](Programs& p) { p[0].rounds[1][1].dst.count = 1; }),
                 "expected 1 elements from rank 2, got 2 by rank 2, round 1, step 0 (send to 0 of "
                 "out[4, 6))"));
  const std::string missing = damaged([](Programs& p) { p[2].rounds.pop_back(); });
  CHECK(contains(missing, "deadlock, expected every message to meet its partner: "));
  CHECK(contains(
      missing,
      "rank 1, round 4, step 0 (send to 2 of out[2, 4)) waits for rank 2, which has finished"));
  // All send first and receive then: right with buffers, a deadlock without.
  const std::string cycle = damaged([](Programs& p) {
    for (Program& program : p) {
      const Step receive = program.rounds[1].back();
      program.rounds[1].pop_back();
      program.rounds.insert(program.rounds.begin() + 2, {receive});
    }
  });
  for (const char* side :
       {"rank 0, round 1, step 0 (send to 1 of out[0, 2)) waits for rank 1, which is in round 1",
        "rank 1, round 1", "rank 2, round 1"}) {
    CHECK(contains(cycle, side));
  }
}

TEST_CASE("contents") {
  // Messages between two ranks match in order.
  const World pair{Collective::broadcast, 2, 0, {2}};
  const Block all{0, 2}, first{0, 1}, second{1, 1};
  CHECK(
      contains(why(pair, {{0, {{send(1, in(first)), send(1, in(second)), copy(out(all), in(all))}}},
                          {0, {{recv(0, out(second)), recv(0, out(first))}}}}),
               "rank 1 ends with a wrong out[0]: expected element 0, got element 1"));
  CHECK(contains(why(pair, {{0, {{copy(out(all), in(all))}}}, {}}),
                 "rank 1 ends with a wrong out[0]: expected element 0, got nothing"));
  CHECK(contains(why(pair, {{2, {{send(1, scratch(all)), copy(out(all), in(all))}}},
                            {0, {{recv(0, out(all))}}}}),
                 "expected data, got undefined scratch[0] of rank 0"));
  CHECK(contains(damaged([](Programs& p) { p[0].rounds.erase(p[0].rounds.begin()); }),
                 "expected data"));
  CHECK(contains(damaged([](Programs& p) {
                   p[0].rounds[0] = {copy(out({0, 4}), in({0, 4}))};
                 }),
                 "expected data to add to, got undefined out[4]"));
  CHECK(contains(damaged([](Programs& p) { p[0].rounds[1][1].dst.at = 2; }),
                 "expected element 2 for out[2], got element 4"));
  CHECK(contains(damaged([](Programs& p) {
                   p[0].rounds.insert(p[0].rounds.begin() + 2, {reduce(out({4, 2}), in({4, 2}))});
                 }),
                 "expected each contribution once, got that of rank 0 a second time in out[4]"));
  CHECK(contains(damaged([](Programs& p) {
                   for (Program& program : p) program.rounds.resize(1);
                 }),
                 "rank 0 ends with a wrong out[0]: expected the contribution of rank 1, got none"));
  const World gather{Collective::all_gather, 2, 0, {1, 1}};
  CHECK(contains(why(gather, {{0, {{copy(out(first), in(first)), copy(out(second), in(first))}}},
                              {0, {{copy(out(first), in(first)), copy(out(second), in(first))}}}}),
                 "rank 0 ends with a wrong out[1]: expected element 1, got element 0"));
  const World wrong_root{Collective::broadcast, 2, 1, {2}};
  CHECK(contains(
      why(wrong_root, {{0, {{copy(out(all), in(all))}}}, {0, {{copy(out(all), in(all))}}}}),
      "expected a source inside in[0, 0)"));
}

TEST_CASE("replicas that are sums of the same numbers but not the same bits") {
  const World world{Collective::all_reduce, 3, 0, {1}};
  const Block one{0, 1};
  Programs programs;
  for (int rank = 0; rank < 3; ++rank) {
    const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
    programs.push_back({2,
                        {{copy(out(one), in(one)), send(next, in(one)), send(previous, in(one)),
                          recv(next, scratch({0, 1})), recv(previous, scratch({1, 1}))},
                         {reduce(out(one), scratch({0, 1}))},
                         {reduce(out(one), scratch({1, 1}))}}});
  }
  CHECK(contains(why(world, programs),
                 "rank 1 ends with a wrong out[0]: expected the reduction tree of the ranks"));
  CHECK_FALSE(testing::judge(world.problem(), programs, false, 1).good);
  // In the order of ranks everywhere, and so the same bits.
  for (int rank = 0; rank < 3; ++rank) {
    Program& program = programs[static_cast<std::size_t>(rank)];
    program = {3, {{}, {}, {}, {}}};
    program.rounds[0] = {copy(scratch({rank, 1}), in(one))};
    for (int other = 0; other < 3; ++other) {
      if (other == rank) continue;
      program.rounds[0].push_back(send(other, in(one)));
      program.rounds[0].push_back(recv(other, scratch({other, 1})));
    }
    program.rounds[1] = {copy(out(one), scratch({0, 1}))};
    program.rounds[2] = {reduce(out(one), scratch({1, 1}))};
    program.rounds[3] = {reduce(out(one), scratch({2, 1}))};
  }
  CHECK(why(world, programs, Aliasing::in_place) == "");
  CHECK(testing::judge(world.problem(), programs, true, 1).good);
}

// Direct slices of 2 ranks, 2 elements a slice. Rank 0: round 0 enters, 1 copies its own `in`, 2
// adds that of rank 1, 3 stores into both, 4 leaves.
TEST_CASE("one-sided steps out of order") {
  const World world{Collective::all_reduce, 2, 0, {4}};
  const auto hurt = [&](const std::function<void(Programs&)>& damage) {
    Programs programs = world.programs(one_sided_algorithms().front());
    REQUIRE(why(world, programs).empty());
    damage(programs);
    CHECK_FALSE(testing::judge(world.problem(), programs, true, 3).good);
    return why(world, programs, Aliasing::in_place);
  };
  CHECK(contains(hurt([](Programs& p) {
                   for (Program& program : p) program.rounds.erase(program.rounds.begin());
                 }),
                 "rank 0, round 1, step 0 (reduce of in[0, 2) of rank 1 into scratch[0, 2)): "
                 "expected a chain of signals from rank 1 first, got none"));
  CHECK(
      contains(hurt([](Programs& p) {
                 for (Program& program : p) program.rounds.pop_back();
               }),
               "rank 0 ends: expected a chain of signals from rank 1, round 1, step 0 (copy of "));
  CHECK(
      contains(hurt([](Programs& p) {
                 p[0].rounds[4].pop_back();
                 p[1].rounds[4].erase(p[1].rounds[4].begin());
               }),
               "rank 0 ends: expected a chain of signals from rank 1, round 1, step 0 (copy of "));
  CHECK(contains(hurt([](Programs& p) { p[0].rounds[4].erase(p[0].rounds[4].begin()); }),
                 "deadlock, expected every message to meet its partner: rank 1, round 4, step 1 "
                 "(await from 0)"));
  // Rank 1 stores into rank 0's slice, which rank 0 is reading.
  CHECK(contains(hurt([](Programs& p) { p[1].rounds[3][0].dst.at = 0; }), "got none: a race"));
  // Signals at the begin of a round, and with it the work that they speak of.
  CHECK(contains(hurt([](Programs& p) {
                   for (Program& program : p) {
                     Round& last = program.rounds[3];
                     last.insert(last.end(), program.rounds[4].begin(), program.rounds[4].end());
                     program.rounds.pop_back();
                   }
                 }),
                 "rank 0 ends: expected a chain of signals from rank 1, round 3, step "));
  const auto refused = [&](const std::function<void(Programs&)>& damage) {
    Programs programs = world.programs(one_sided_algorithms().front());
    damage(programs);
    return why(world, programs);
  };
  CHECK(contains(refused([](Programs& p) { p[0].rounds.push_back({signal(1)}); }),
                 "rank 0, round 5, step 0 (signal to 1): expected an await to match, got none"));
  CHECK(contains(refused([](Programs& p) { p[0].rounds[2][0].src.owner = 0; }),
                 "of one of the other ranks below 2, or none named, got one of rank 0"));
  CHECK(
      contains(refused([](Programs& p) { p[0].rounds[2][0].src.owner = 2; }), "got one of rank 2"));
}

TEST_CASE("rooms: halves in turn, slots in turn, and word of everyone") {
  const auto one = [](std::string_view name) {
    for (const Entry& entry : one_sided_algorithms()) {
      if (entry.name == name) return entry;
    }
    throw std::runtime_error("no such algorithm");
  };
  // One slot for all chunks: a rank fills it again while others read the chunk before.
  World world{Collective::all_reduce, 3, 0, {12}};
  world.chunk = 3;
  Programs programs = world.programs(one("staged_slices"));
  CHECK(why(world, programs) == "");
  CHECK(testing::judge(world.problem(), programs, false, 1).good);
  for (Program& program : programs) {
    for (Round& round : program.rounds) {
      for (Step& step : round) {
        for (Span* span : {&step.dst, &step.src}) {
          if (span->buffer == Buffer::room) span->at %= 3;
        }
      }
    }
  }
  CHECK(contains(why(world, programs), "got none: a race"));
  CHECK_FALSE(testing::judge(world.problem(), programs, false, 1).good);

  // A broadcast whose root hears of nobody: some rank may still read what the root wrote two
  // operations ago, in the same half.
  const World given{Collective::broadcast, 2, 0, {2}};
  const Block all{0, 2};
  Programs hasty(2);
  for (Program& program : hasty) program.room = 2;
  hasty[0].rounds = {{copy(room(all), in(all)), copy(out(all), in(all))}, {signal(1)}};
  hasty[1].rounds = {{await(0)}, {copy(out(all), of(0, 1, room(all)))}};
  CHECK(contains(why(given, hasty),
                 "rank 0 ends: expected a chain of signals from every rank of its node, got "
                 "none from rank 1"));
  CHECK_FALSE(testing::judge(given.problem(), hasty, false, 1).good);
  hasty[0].rounds.insert(hasty[0].rounds.begin(), {await(1)});
  hasty[1].rounds.insert(hasty[1].rounds.begin(), {signal(0)});
  CHECK(why(given, hasty) == "");
  CHECK(testing::judge(given.problem(), hasty, false, 1).good);

  // By messages, and a signal that rank 2 knows nothing of: it takes no half, and is one behind
  // from then on.
  const World three{Collective::broadcast, 3, 0, {2}};
  Programs partly(3);
  partly[0].rounds = {{copy(out(all), in(all)), send(1, in(all)), send(2, in(all))}, {signal(1)}};
  partly[1].rounds = {{recv(0, out(all))}, {await(0)}};
  partly[2].rounds = {{recv(0, out(all))}};
  CHECK(contains(why(three, partly), "got none from rank"));
}

TEST_CASE("one-sided steps stay within a node, and word need not come from beyond it") {
  World world{Collective::all_reduce, 4, 0, {8}};
  const auto direct = world.programs(*find(world.what, "direct_slices"));
  CHECK(why(world, direct) == "");
  world.nodes = nodes_of(4, 2);
  CHECK(contains(why(world, direct),
                 "rank 0, round 0, step 1 (await from 3): expected a rank of the same node, for "
                 "others share no memory, got rank 3"));
  CHECK_FALSE(testing::judge(world.problem(), direct, false, 1).good);

  const Programs two_levels = world.programs(*find(world.what, "hierarchical_direct"));
  CHECK(why(world, two_levels) == "");
  const auto hurt = [&](const std::function<void(Programs&)>& damage) {
    Programs programs = two_levels;
    damage(programs);
    CHECK_FALSE(testing::judge(world.problem(), programs, true, 3).good);
    return why(world, programs, Aliasing::in_place);
  };
  // Rank 0: 0 enters, 1 and 2 add in scratch, 3 stores into its `out`, 4 and 5 are its column's, 6
  // stores into that of rank 1, 7 leaves.
  REQUIRE(two_levels[0].rounds.size() == 8);
  CHECK(contains(hurt([](Programs& p) { p[0].rounds[6][0].dst.owner = 3; }),
                 "expected a rank of the same node, for others share no memory, got rank 3"));
  CHECK(
      contains(hurt([](Programs& p) { std::swap(p[0].rounds[6], p[0].rounds[7]); }),
               "rank 1 ends: expected a chain of signals from rank 0, round 7, step 0 (copy of "));
  CHECK(contains(hurt([](Programs& p) { std::swap(p[0].rounds[5], p[0].rounds[6]); }),
                 "ends with a wrong out["));
}

TEST_CASE("a barrier of signals") {
  const World world{Collective::barrier, 3, 0, {}};
  Programs programs(3);
  for (int rank = 0; rank < 3; ++rank) {
    for (const int step : {1, 2}) {
      programs[static_cast<std::size_t>(rank)].rounds.push_back(
          {signal((rank + step) % 3), await((rank + 3 - step) % 3)});
    }
  }
  CHECK(why(world, programs) == "");
  CHECK(testing::judge(world.problem(), programs, false, 1).good);
  for (Program& program : programs) program.rounds.pop_back();
  CHECK(contains(why(world, programs), "rank 0 leaves the barrier"));
  CHECK_FALSE(testing::judge(world.problem(), programs, false, 1).good);
}

TEST_CASE("a barrier that lets a rank go too early") {
  const World world{Collective::barrier, 4, 0, {}};
  Programs programs = world.programs(*find(Collective::barrier, "dissemination"));
  CHECK(why(world, programs) == "");
  for (Program& program : programs) program.rounds.pop_back();
  CHECK(contains(
      why(world, programs),
      "rank 0 leaves the barrier: expected all ranks to have come, got no word of rank 1"));
  CHECK_FALSE(testing::judge(world.problem(), programs, false, 1).good);
}

TEST_CASE("collectives by hand, right and wrong") {
  const Block mine{0, 2};
  // All exchange directly, in one round; the wrong ones shift what rank 1 sends or receives by one.
  const auto check = [](const World& world, const Programs& right, bool in_place) {
    const Aliasing aliasing = in_place ? Aliasing::in_place : Aliasing::out_of_place;
    CHECK(why(world, right, aliasing) == "");
    CHECK(testing::judge(world.problem(), right, in_place, 1).good);
    Programs wrong = right;
    for (Step& step : wrong[1].rounds[0]) {
      if (step.kind == Kind::send) step.src.at += step.src.at == 0 ? 1 : -1;
      if (step.kind == Kind::recv) step.dst.at += step.dst.at == 0 ? 1 : -1;
    }
    CHECK(why(world, wrong, aliasing) != "");
    CHECK_FALSE(testing::judge(world.problem(), wrong, in_place, 1).good);
  };
  Programs gather(3), scatter(3), sum(3), exchange(3);
  gather[1].rounds = {{copy(out({2, 2}), in(mine)), recv(0, out({0, 2})), recv(2, out({4, 2}))}};
  scatter[1].rounds = {{copy(out(mine), in({2, 2})), send(0, in({0, 2})), send(2, in({4, 2}))}};
  sum[1].rounds = {
      {copy(out(mine), in(mine))}, {recv_reduce(0, out(mine))}, {recv_reduce(2, out(mine))}};
  for (const int r : {0, 2}) {
    const auto rank = static_cast<std::size_t>(r);
    gather[rank].rounds = {{send(1, in(mine))}};
    scatter[rank].rounds = {{recv(1, out(mine))}};
    sum[rank].rounds = {{send(1, in(mine))}};
  }
  for (const bool in_place : {false, true}) {
    check({Collective::gather, 3, 1, {2, 2, 2}}, gather, in_place);
    check({Collective::scatter, 3, 1, {2, 2, 2}}, scatter, in_place);
    const World reduction{Collective::reduce, 3, 1, {2}};
    CHECK(why(reduction, sum, in_place ? Aliasing::in_place : Aliasing::out_of_place) == "");
    CHECK(testing::judge(reduction.problem(), sum, in_place, 1).good);
  }
  // Rank s sends s + d + 1 elements to rank d.
  const World world{Collective::all_to_all, 3, 0, {1, 2, 3, 2, 3, 4, 3, 4, 5}};
  for (int r = 0; r < 3; ++r) {
    Round round;
    std::int64_t at = 0;
    for (int other = 0; other < 3; ++other) {
      const Block block{at, r + other + 1};
      at += block.count;
      if (other == r) {
        round.push_back(copy(out(block), in(block)));
      } else {
        round.push_back(send(other, in(block)));
        round.push_back(recv(other, out(block)));
      }
    }
    exchange[static_cast<std::size_t>(r)].rounds = {round};
  }
  check(world, exchange, false);
  CHECK_THROWS_AS(verify(world.problem(), exchange, Aliasing::in_place), std::invalid_argument);
}

}  // namespace
}  // namespace peal::comm
