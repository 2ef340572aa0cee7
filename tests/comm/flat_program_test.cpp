// SPDX-License-Identifier: Apache-2.0
// Flat programs, put together again to programs of all workers, are proven like any other.
#include "schedule_worlds.h"

#include <doctest/doctest.h>
#include <peal/comm/algorithms/in_strips.h>
#include <peal/comm/algorithms/meeting.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/schedule/flat_program.h>
#include <peal/comm/verify/verify.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

// The workers' steps of one rank, one worker after the other.
class Expansion {
 public:
  Expansion(const FlatProgram& flat, int rank, int workers, bool within_reach)
      : flat_(flat), rank_(rank), workers_(workers), within_reach_(within_reach) {
    program_.room = workers * flat.room;
    for (worker_ = 0; worker_ < workers; ++worker_) run();
    close();
  }
  Program program() const { return program_; }

 private:
  void close() { add(program_, std::exchange(round_, {})); }

  std::vector<Span> spans(const FlatStep& step, const FlatCursor& now, int first, int count) const {
    const Block elements = elements_of(flat_, step, now.round, worker_, workers_);
    std::vector<Span> all;
    for (int i = first; i < first + count; ++i) {
      const FlatSpan& span = flat_.span[i];
      std::int64_t at = place_of(span, elements, now.round);
      if (span.buffer == Buffer::room) at += worker_ * flat_.room;
      all.push_back(of(span.owner, rank_, {self, span.buffer, at, elements.count}));
    }
    return all;
  }

  void run() {
    for (FlatCursor now;;) {
      const FlatStep& step = flat_.step[now.step];
      const auto targets = spans(step, now, step.first, step.targets);
      const auto sources = spans(step, now, step.first + step.targets, step.sources);
      switch (step.kind) {
        case FlatStep::Kind::stop:
          return;
        case FlatStep::Kind::choose:
          choose(flat_, now, within_reach_);
          continue;
        case FlatStep::Kind::meet:
          close();
          for (int r = 0; r < FlatProgram::most_ranks; ++r) {
            if ((step.signals >> r & 1) != 0) round_.push_back(signal(r));
            if ((step.awaits >> r & 1) != 0) round_.push_back(await(r));
          }
          close();
          break;
        case FlatStep::Kind::copy:
          if (step.fresh) close();
          round_.push_back(copy(targets[0], sources[0]));
          break;
        case FlatStep::Kind::combine:
          if (step.fresh) close();
          add_combination(program_, targets, sources);
          break;
        case FlatStep::Kind::again:
          break;
      }
      advance(flat_, now);
    }
  }

  const FlatProgram& flat_;
  int rank_, workers_, worker_ = 0;
  bool within_reach_;
  Program program_;
  Round round_;
};

Aliasing aliasing(bool in_place) { return in_place ? Aliasing::in_place : Aliasing::out_of_place; }

using Make = FlatProgram (*)(const Problem&, const Workers&);

std::vector<FlatProgram> of_ranks(const World& world, const Workers& workers, Make make) {
  std::vector<FlatProgram> all;
  for (int r = 0; r < world.ranks; ++r) all.push_back(make(world.problem(r), workers));
  return all;
}

// Proves, or refutes, both ways to go on, in place and not; counts those that are right.
int proven(const World& world, const std::vector<FlatProgram>& flat, int workers,
           std::string* why = nullptr) {
  int right = 0;
  for (const bool within_reach : {true, false}) {
    std::vector<Program> programs;
    for (int r = 0; r < world.ranks; ++r) {
      programs.push_back(
          Expansion(flat[static_cast<std::size_t>(r)], r, workers, within_reach).program());
    }
    for (const bool in_place : testing::in_place_or_not(world.what)) {
      const Verdict verdict = verify(world.problem(), programs, aliasing(in_place));
      if (verdict.ok) ++right;
      if (!verdict.ok && why != nullptr) *why = verdict.why;
    }
  }
  return right;
}

int ways(Collective what) { return 2 * static_cast<int>(testing::in_place_or_not(what).size()); }

}  // namespace

TEST_CASE("what all workers do together is proven, by slots and by slices, direct and staged") {
  int slots = 0, slices = 0, loops = 0;
  for (const Collective what : all_collectives) {
    for (const int p : {1, 2, 3, 4, 5, 8, 16}) {
      for (const std::int64_t n : {0, 1, p + 1, 97}) {
        for (const bool ragged : {false, true}) {
          const auto counts = testing::counts_for(what, p, n, ragged);
          if (ragged && counts.size() <= 1) continue;
          const int root = has_root(what) ? p - 1 : 0;
          const World world{what, p, root, counts};
          for (const Workers& workers : {Workers{1, 1 << 20, 1}, Workers{3, 1 << 20, 4},
                                         Workers{1, 8 * p, 4}, Workers{2, 8 * p, 4}}) {
            INFO(name(what), " of ", p, " ranks, n ", n, ", ragged ", ragged, ", ", workers.count,
                 " workers with rooms of ", workers.room);
            std::string why;
            if (fits_slots(world.problem(), workers)) {
              const auto flat = of_ranks(world, workers, slots_in_strips);
              CHECK_MESSAGE(proven(world, flat, workers.count, &why) == ways(what), why);
              for (const FlatProgram& each : flat) CHECK(each.room <= workers.room);
              ++slots;
            }
            if (what == Collective::barrier || p == 1) continue;
            const auto flat = of_ranks(world, workers, slices_in_strips);
            CHECK_MESSAGE(proven(world, flat, workers.count, &why) == ways(what), why);
            for (const FlatProgram& each : flat) {
              CHECK(each.room <= workers.room);
              if (each.stride > 0) ++loops;
            }
            ++slices;
          }
        }
      }
    }
  }
  CHECK(slots > 500);
  CHECK(slices > 1000);
  CHECK(loops > 500);
}

TEST_CASE("programs are as short for any length") {
  for (const Collective what : all_collectives) {
    if (what == Collective::barrier) continue;
    const int p = FlatProgram::most_ranks;
    const auto counts = testing::counts_for(what, p, 1 << 14, true);
    const FlatProgram flat =
        slices_in_strips(World{what, p, 0, counts}.problem(p - 1), {1, 64 * p, 4});
    CHECK(flat.steps <= FlatProgram::most_steps);
    CHECK(flat.stride > 0);
  }
}

// The proof sees what it is of.
TEST_CASE("damaged flat programs are refuted") {
  const World world{Collective::all_reduce, 3, 0, {97}};
  const Workers workers{2, 24, 4};
  const auto whole = of_ranks(world, workers, slices_in_strips);
  REQUIRE(proven(world, whole, workers.count) == ways(world.what));
  const auto refuted = [&](const auto& damage) {
    auto flat = whole;
    for (FlatProgram& each : flat) damage(each);
    return proven(world, flat, workers.count) < ways(world.what);
  };
  CHECK(refuted([](FlatProgram& each) { each.stride += 4; }));
  CHECK(refuted([](FlatProgram& each) { each.count[0] -= 1; }));
  CHECK(refuted([](FlatProgram& each) {
    for (FlatSpan& span : each.span) span.odd = static_cast<std::int32_t>(span.at);
  }));
  CHECK(refuted([](FlatProgram& each) {
    for (FlatStep& step : each.step) {
      if (step.kind == FlatStep::Kind::again) --step.count;
    }
  }));
}

TEST_CASE("a round that reads what the one before wrote begins afresh") {
  const std::vector<std::int64_t> counts{8};
  const Topology nodes = single_node(1);
  Program program;
  program.room = 8;
  program.rounds = {{copy(room({0, 4}), in({0, 4})), copy(room({4, 4}), in({4, 4}))},
                    {copy(out({0, 4}), room({0, 4}))}};
  const Plan plan(program);
  const FlatProgram flat = flatten({Collective::all_reduce, 0, 1, 0, counts, nodes}, 1, {&plan, 8});
  REQUIRE(flat.steps == 4);
  CHECK(!flat.step[1].fresh);
  CHECK(flat.step[2].fresh);
}

TEST_CASE("what cannot be flattened is refused") {
  const std::vector<std::int64_t> counts{8};
  const Topology nodes = single_node(2);
  const Problem problem{Collective::all_reduce, 0, 2, 0, counts, nodes};
  const auto refused = [&](const std::vector<Round>& rounds) {
    Program program;
    program.room = program.scratch = 8;
    program.rounds = rounds;
    const Plan plan(program);
    try {
      flatten(problem, 1, {&plan, 8});
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Block all{0, 8}, half{4, 4};
  CHECK(refused({{send(1, in(all))}}).find("a send by itself") != std::string::npos);
  CHECK(refused({{reduce(room(all), in(all))}}).find("a reduce by itself") != std::string::npos);
  CHECK(refused({{copy(scratch(all), in(all))}}).find("scratch") != std::string::npos);
  CHECK(refused({{copy(out({0, 4}), in(half))}}).find("others' places") != std::string::npos);
  CHECK(refused({{copy(room({0, 4}), room(half))}}).find("room to room") != std::string::npos);
  CHECK(refused({{signal(1)}, {signal(1)}}).find("two signals") != std::string::npos);
  CHECK(refused({{await(1)}, {signal(1)}}).find("does not hear of again") != std::string::npos);
  CHECK(refused({{signal(1), await(1)}, {copy(room(all), in(all))}}).empty());
}

}  // namespace peal::comm
