// SPDX-License-Identifier: Apache-2.0
// Problems, blocks, hashes, the table: the plain values around a schedule.
#include "schedule_worlds.h"

#include <doctest/doctest.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/schedule/schedule.h>
#include <peal/comm/schedule/segments.h>

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

TEST_CASE("balanced blocks cover the buffer and differ by one") {
  for (const std::int64_t n : {0, 1, 4, 5, 6, 97}) {
    for (int p = 1; p <= 9; ++p) {
      const Blocks block = Blocks::balanced(n, p);
      REQUIRE(block.size() == p);
      std::int64_t at = 0;
      for (int i = 0; i < p; ++i) {
        CHECK(block[i].at == at);
        CHECK(block[i].count == n / p + (i < n % p ? 1 : 0));
        at += block[i].count;
      }
      CHECK(block.total() == n);
      CHECK(block.largest() == (n + p - 1) / p);
      CHECK(block[-1] == block[p - 1]);
      CHECK(block[p + 1] == block[1]);
    }
  }
}

TEST_CASE("aligned blocks begin at multiples") {
  const Blocks block = Blocks::balanced(21, 4, 4);  // 6 units, the last of 1 element
  CHECK(block[0] == Block{0, 8});
  CHECK(block[1] == Block{8, 8});
  CHECK(block[2] == Block{16, 4});
  CHECK(block[3] == Block{20, 1});
  CHECK(Blocks::balanced(3, 4, 8)[3] == Block{3, 0});
}

TEST_CASE("runs of blocks, whole or in two pieces") {
  const std::vector<std::int64_t> counts{2, 0, 3, 1};
  const Blocks block(counts);
  CHECK(block.run(0, 4) == std::vector<Block>{{0, 6}});
  CHECK(block.run(1, 2) == std::vector<Block>{{2, 3}});
  CHECK(block.run(3, 2) == std::vector<Block>{{5, 1}, {0, 2}});
  CHECK(block.run(-1, 1) == std::vector<Block>{{5, 1}});
  CHECK(block.run(6, 3) == std::vector<Block>{{2, 4}, {0, 2}});
  CHECK(block.range(1, 3) == Block{2, 4});
  CHECK(block.range(4, 0) == Block{6, 0});
}

TEST_CASE("add leaves out what moves nothing") {
  Program program;
  add(program, {copy(out({0, 0}), in({0, 0}))});
  CHECK(program.rounds.empty());
  add(program, {send(1, in({3, 0})), recv(1, out({3, 2})), signal(2)});
  REQUIRE(program.rounds.size() == 1);
  CHECK(program.rounds[0] == Round{recv(1, out({3, 2})), signal(2)});
}

TEST_CASE("who has how much, and where in place") {
  struct Row {
    World world;
    std::int64_t in, out, offset;  // of rank 1 of 3
  };
  const std::vector<Row> rows{
      {{Collective::all_reduce, 3, 0, {7}}, 7, 7, 0},
      {{Collective::reduce, 3, 0, {7}}, 7, 0, 0},
      {{Collective::reduce, 3, 1, {7}}, 7, 7, 0},
      {{Collective::broadcast, 3, 0, {7}}, 0, 7, 0},
      {{Collective::broadcast, 3, 1, {7}}, 7, 7, 0},
      {{Collective::all_gather, 3, 0, {2, 3, 4}}, 3, 9, 2},
      {{Collective::reduce_scatter, 3, 0, {2, 3, 4}}, 9, 3, -2},
      {{Collective::gather, 3, 1, {2, 3, 4}}, 3, 9, 2},
      {{Collective::gather, 3, 2, {2, 3, 4}}, 3, 0, 2},
      {{Collective::scatter, 3, 1, {2, 3, 4}}, 9, 3, -2},
      {{Collective::scatter, 3, 2, {2, 3, 4}}, 0, 3, -2},
      {{Collective::barrier, 3, 0, {}}, 0, 0, 0},
  };
  for (const Row& row : rows) {
    const Problem problem = row.world.problem(1);
    CAPTURE(name(problem.what));
    validate(problem);
    CHECK(in_count(problem) == row.in);
    CHECK(out_count(problem) == row.out);
    CHECK(in_place_offset(problem) == row.offset);
  }
  const World exchange{Collective::all_to_all, 2, 0, {1, 2, 3, 4}};
  CHECK(in_count(exchange.problem(1)) == 7);
  CHECK(out_count(exchange.problem(1)) == 6);
  CHECK_THROWS_AS(in_place_offset(exchange.problem(1)), std::invalid_argument);
}

TEST_CASE("problems that are none") {
  const Entry& ring = *find(Collective::all_reduce, "ring");
  const auto refusal = [&](World world, int rank) -> std::string {
    try {
      plan(ring, world.problem(rank));
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  CHECK(refusal({Collective::all_reduce, 2, 0, {5}}, 0) == "accepted");
  CHECK(refusal({Collective::all_reduce, 2, 0, {5}}, 2) ==
        "all_reduce: expected a rank below 2, got 2");
  CHECK(refusal({Collective::all_reduce, 2, 0, {5}}, -1) ==
        "all_reduce: expected a rank below 2, got -1");
  CHECK(refusal({Collective::all_reduce, 2, 1, {5}}, 0) == "all_reduce: expected root 0, got 1");
  CHECK(refusal({Collective::broadcast, 2, 2, {5}}, 0) ==
        "broadcast: expected a root below 2, got 2");
  CHECK(refusal({Collective::all_reduce, 2, 0, {5, 5}}, 0) ==
        "all_reduce: expected this many counts: 1, got 2");
  CHECK(refusal({Collective::all_reduce, 2, 0, {-5}}, 0) ==
        "all_reduce: expected counts of at least 0, got -5");
  CHECK(refusal({Collective::all_reduce, 2, 0, {5}, 0}, 0) ==
        "all_reduce: expected an alignment of at least 1, got 0");
  CHECK(refusal({Collective::all_reduce, 2, 0, {5}, 1, single_node(3)}, 0) ==
        "all_reduce: expected a topology of ranks: 2, got 3");
  CHECK(refusal({Collective::all_reduce, 0, 0, {5}}, 0) ==
        "all_reduce: expected a world of at least 1, got 0");
  CHECK(refusal({Collective::broadcast, 2, 0, {5}}, 0) ==
        "all_reduce by ring: got a problem of broadcast");
  const Entry picky{Collective::all_reduce,
                    "picky",
                    ring.make,
                    {"4", [](int world) { return world == 4; }},
                    ring.costs};
  CHECK_THROWS_WITH(plan(picky, World{Collective::all_reduce, 2, 0, {5}}.problem()),
                    "all_reduce by picky: no plan for a world of 2");
}

TEST_CASE("names in the table are unique, and find finds them") {
  std::set<std::pair<Collective, std::string_view>> names;
  for (const Entry& entry : algorithms()) {
    CHECK(names.emplace(entry.what, entry.name).second);
    CHECK(find(entry.what, entry.name) == &entry);
  }
  CHECK(find(Collective::broadcast, "ring") == nullptr);
  CHECK(find(Collective::all_reduce, "") == nullptr);
}

TEST_CASE("a plan depends on its problem alone, and its hash on every field") {
  std::set<std::uint64_t> hashes;
  std::vector<Program> different;
  for (const Entry& entry : algorithms()) {
    for (const int p : {2, 3, 8}) {
      if (!entry.supports(p)) continue;
      const World world = testing::worlds_for(entry, p, 40).front();
      for (int rank = 0; rank < p; ++rank) {
        const Program program = plan(entry, world.problem(rank));
        CHECK(program == plan(entry, world.problem(rank)));
        CHECK(hash(program) == hash(plan(entry, world.problem(rank))));
        hashes.insert(hash(program));
        if (std::ranges::find(different, program) == different.end()) different.push_back(program);
      }
    }
  }
  CHECK(hashes.size() == different.size());
  CHECK(different.size() > 200);

  const Program original{
      4, {{recv_reduce(1, out({2, 3}))}, {copy(scratch({0, 1}), in({5, 1})), send(2, in({0, 1}))}}};
  const std::vector<std::function<void(Program&)>> changes{
      [](Program& p) { p.scratch = 5; },
      [](Program& p) { p.room = 5; },
      [](Program& p) { p.rounds.emplace_back(); },
      [](Program& p) { std::swap(p.rounds[0], p.rounds[1]); },
      [](Program& p) { std::swap(p.rounds[1][0], p.rounds[1][1]); },
      [](Program& p) {
        p.rounds[0].push_back(p.rounds[1][0]), p.rounds[1].erase(p.rounds[1].begin());
      },
      [](Program& p) { p.rounds[0][0].kind = Kind::recv; },
      [](Program& p) { p.rounds[0][0].peer = 2; },
      [](Program& p) { p.rounds[0][0].dst.owner = 0; },
      [](Program& p) { p.rounds[0][0].dst.buffer = Buffer::scratch; },
      [](Program& p) { p.rounds[0][0].dst.at = 3; },
      [](Program& p) { p.rounds[0][0].dst.count = 2; },
      [](Program& p) { std::swap(p.rounds[0][0].dst, p.rounds[0][0].src); },
  };
  std::set<std::uint64_t> seen{hash(original)};
  for (const auto& change : changes) {
    Program changed = original;
    change(changed);
    CHECK(changed != original);
    CHECK(seen.insert(hash(changed)).second);
  }
  CHECK(hash(original) == 8510311675642796704u);  // the same on every machine
}

TEST_CASE("one rank of a large world is planned alone") {
  const World world{Collective::all_reduce, 4096, 0, {1 << 20}};
  const Program program = plan(*find(Collective::all_reduce, "ring"), world.problem(4095));
  CHECK(program.rounds.size() == 1 + 2 * 4095);
}

TEST_CASE("segments: what a ring needs first comes first, and goes back while the rest travels") {
  const std::int64_t counts[] = {12};
  const Topology nodes = single_node(4);
  const Entry& ring = *find(Collective::all_reduce, "ring");
  const Program program = plan(ring, {Collective::all_reduce, 1, 4, 0, counts, nodes});
  const std::size_t rounds = program.rounds.size();
  // Each segment's rounds are those of its steps, whichever of the two buffers they name.
  for (const std::int64_t size : {1, 3, 5, 12, 100}) {
    std::int64_t next = 0;
    for (const Segment& segment : segments(program, Buffer::in, 12, size, 0)) {
      CHECK(segment.block.at == next);
      next += segment.block.count;
      std::size_t first = rounds, last = 0;
      for (std::size_t r = 0; r < rounds; ++r) {
        for (const Step& step : program.rounds[r]) {
          for (const Span& span : {step.dst, step.src}) {
            const bool meets = span.buffer != Buffer::scratch && span.at < next &&
                               span.at + span.count > segment.block.at && span.count > 0;
            if (meets) first = std::min(first, r), last = std::max(last, r);
          }
        }
      }
      CHECK(segment.first == (size >= 12 ? 0 : first));
      CHECK(segment.last == (size >= 12 ? rounds - 1 : last));
    }
    CHECK(next == 12);
  }
  // Out of place a buffer's rounds are its own: the first one copies all of `in`.
  const auto input = segments(program, Buffer::in, 12, 3, std::nullopt);
  CHECK(std::all_of(input.begin(), input.end(), [](const Segment& s) { return s.first == 0; }));
  // Shifted: rank 1's part of an all-gather, of 2 elements from element 4 on.
  const std::int64_t parts[] = {4, 2, 3};
  const Program gather = plan(*find(Collective::all_gather, "ring"),
                              {Collective::all_gather, 1, 3, 0, parts, single_node(3)});
  const auto mine = segments(gather, Buffer::in, 2, 1, 4);
  REQUIRE(mine.size() == 2);
  CHECK(mine[0].first == 0);
  CHECK(segments(Program{}, Buffer::out, 7, 2, 0) == std::vector<Segment>{{{0, 7}, 0, 0}});
  CHECK(segments(program, Buffer::out, 0, 2, 0).empty());
}

TEST_CASE("segments: what other ranks reach into is there from the first round to the last") {
  const Entry& direct = one_sided_algorithms().front();
  for (int rank = 0; rank < 3; ++rank) {
    const World world{Collective::all_reduce, 3, 0, {12}};
    const Program program = plan(direct, world.problem(rank));
    REQUIRE(program.rounds.size() > 1);
    for (const Buffer buffer : {Buffer::in, Buffer::out}) {
      const auto all = segments(program, buffer, 12, 2, std::nullopt);
      CHECK(all.size() == 6);
      for (const Segment& segment : all) {
        CHECK(segment.first == 0);
        CHECK(segment.last == program.rounds.size() - 1);
      }
    }
  }
}

}  // namespace
}  // namespace peal::comm
