// SPDX-License-Identifier: Apache-2.0
// A verifier is as good as what it rejects. Valid schedules are damaged at random; whatever the
// judge finds bad, the verifier must have rejected.
#include "judge.h"
#include "schedule_worlds.h"

#include <doctest/doctest.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/verify/verify.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : rng_(seed) {}

  int below(std::size_t n) { return static_cast<int>(rng_() % n); }

  World world(const Entry& entry) {
    int p = 2 + below(5);
    while (!entry.supports(p)) p = 2 + below(5);
    const auto all = testing::worlds_for(entry, p, 1 + below(static_cast<std::size_t>(3 * p)));
    return all[static_cast<std::size_t>(below(all.size()))];
  }

  // The name of what was done to the programs, or empty if it could not be done.
  std::string damage(std::vector<Program>& programs) {
    const int world = static_cast<int>(programs.size());
    Program& program = programs[static_cast<std::size_t>(below(programs.size()))];
    if (program.rounds.empty()) return {};
    const auto at = static_cast<std::size_t>(below(program.rounds.size()));
    Round& round = program.rounds[at];
    const auto which = static_cast<std::size_t>(below(round.size()));
    Step& step = round[which];
    const bool reads =
        step.kind == Kind::send || step.kind == Kind::copy || step.kind == Kind::reduce;
    const bool writes =
        step.kind != Kind::send && step.kind != Kind::signal && step.kind != Kind::await;
    Span& span = reads && (!writes || below(2) == 0) ? step.src : step.dst;
    const int nudge = (1 + below(2)) * (below(2) == 0 ? 1 : -1);
    switch (below(16)) {
      case 0:
        round.erase(round.begin() + static_cast<std::ptrdiff_t>(which));
        return "drop a step";
      case 1:
        round.push_back(Step(step));
        return "duplicate a step";
      case 2:
        step.peer = below(static_cast<std::size_t>(world + 2)) - 1;
        return "change a peer";
      case 3:
        span.at += nudge;
        return "shift a span";
      case 4:
        span.count += nudge;
        return "change a count";
      case 5:
        step.src.count += nudge * reads;
        step.dst.count += nudge * writes;
        return "change a step's counts";
      case 6:
        step.kind = static_cast<Kind>(below(7));
        return "change a kind";
      case 7:
        std::swap(round, program.rounds[static_cast<std::size_t>(below(program.rounds.size()))]);
        return "swap rounds";
      case 8: {
        const Step moved = step;
        round.erase(round.begin() + static_cast<std::ptrdiff_t>(which));
        program.rounds[static_cast<std::size_t>(below(program.rounds.size()))].push_back(moved);
        return "move a step";
      }
      case 9:
        span.buffer = static_cast<Buffer>(below(buffer_kinds));
        return "change a buffer";
      case 10:
        std::swap(step.dst, step.src);
        return "swap source and destination";
      case 11:
        if (!writes) {
          step.dst.at = 1;
        } else if (!reads) {
          step.src.count = 1;
        } else {
          step.peer = 0;
        }
        return "set an unused field";
      case 12: {
        if (at + 1 == program.rounds.size()) return {};
        const Round& next = program.rounds[at + 1];
        round.insert(round.end(), next.begin(), next.end());
        program.rounds.erase(program.rounds.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        return "merge two rounds";
      }
      case 14:
        span.owner = below(static_cast<std::size_t>(world + 1)) - 1;
        return "change an owner";
      case 13: {
        const Round first{step};
        round.erase(round.begin() + static_cast<std::ptrdiff_t>(which));
        program.rounds.insert(program.rounds.begin() + static_cast<std::ptrdiff_t>(at), first);
        return "split a round";
      }
      default:
        std::swap(program, programs[static_cast<std::size_t>(below(programs.size()))]);
        return "swap ranks";
    }
  }

 private:
  std::mt19937_64 rng_;
};

struct Tally {
  int made = 0, bad = 0, rejected_harmless = 0;
};

TEST_CASE("the verifier rejects every mutant that the judge finds bad") {
  constexpr int wanted = 10000;
  int bad = 0, rejected = 0, rejected_harmless = 0, accepted_harmless = 0;
  std::map<std::string, Tally> tallies;
  Mutator mutator(20240607);
  const std::vector<Entry> entries = all_algorithms();
  for (int made = 0; made < wanted;) {
    const Entry& entry = entries[static_cast<std::size_t>(mutator.below(entries.size()))];
    const World world = mutator.world(entry);
    const auto valid = world.programs(entry);
    auto mutant = valid;
    const std::string how = mutator.damage(mutant);
    if (how.empty() || mutant == valid) continue;
    ++made;
    bool judged_bad = false, was_rejected = false;
    for (const bool in_place : testing::in_place_or_not(entry.what)) {
      const auto judgement =
          testing::judge(world.problem(), mutant, in_place, static_cast<std::uint64_t>(made));
      const Verdict verdict =
          verify(world.problem(), mutant, in_place ? Aliasing::in_place : Aliasing::out_of_place);
      const bool caught = judgement.good || !verdict.ok;
      CHECK_MESSAGE(caught, "accepted though bad: ", how, " in ", world.text(entry, true),
                    in_place ? ", in place: " : ": ", judgement.why);
      CHECK(verdict.ok == verdict.why.empty());
      judged_bad = judged_bad || !judgement.good;
      was_rejected = was_rejected || !verdict.ok;
    }
    Tally& tally = tallies[std::string(name(entry.what)) + " " + std::string(entry.name)];
    ++tally.made;
    tally.bad += judged_bad;
    tally.rejected_harmless += was_rejected && !judged_bad;
    bad += judged_bad;
    rejected += was_rejected;
    rejected_harmless += was_rejected && !judged_bad;
    accepted_harmless += !was_rejected && !judged_bad;
  }
  for (const auto& [who, tally] : tallies) {
    MESSAGE(who, ": ", tally.made, " mutants, bad ", tally.bad, ", rejected though harmless ",
            tally.rejected_harmless);
    CHECK(tally.bad > 0);
  }
  CHECK(tallies.size() == all_algorithms().size());
  MESSAGE("of ", wanted, " mutants: judged bad ", bad, ", rejected ", rejected,
          ", rejected though harmless ", rejected_harmless, ", accepted harmless ",
          accepted_harmless);
  CHECK(bad > wanted / 2);
  CHECK(accepted_harmless > 0);
  CHECK(rejected_harmless < wanted / 4);
}

}  // namespace
}  // namespace peal::comm
