// SPDX-License-Identifier: Apache-2.0
// Valid pipeline schedules are damaged at random; whatever the judge finds bad, the verifier must
// have rejected.
#include "pipeline_judge.h"

#include <doctest/doctest.h>
#include <peal/comm/pipeline/simulate.h>
#include <peal/comm/pipeline/verify.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm::pipeline {
namespace {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : rng_(seed) {}

  int below(std::size_t n) { return static_cast<int>(rng_() % n); }

  Problem problem() {
    const Kind kind = all_kinds[below(std::size(all_kinds))];
    const int chunks = kind == Kind::interleaved ? 2 + below(2) : 0;
    Problem problem = make_problem(kind, 2 + below(3), 1 + below(6), chunks);
    for (int i = below(3); i > 0 && problem.parts() > 2; --i) {
      const int from = below(static_cast<std::size_t>(problem.parts() - 2));
      const int most = problem.last_part() - from - 1;
      const Skip skip{from, from + 2 + below(static_cast<std::size_t>(most))};
      if (!std::ranges::count(problem.skips, skip)) problem.skips.push_back(skip);
    }
    return problem;
  }

  // The name of what was done to the programs, or empty if it could not be done.
  std::string damage(const Problem& problem, std::vector<Program>& programs) {
    Program& program = programs[static_cast<std::size_t>(below(programs.size()))];
    const auto place = [this](const Program& p) { return p.begin() + below(p.size()); };
    const auto at = program.begin() + below(program.size());
    Step& step = *at;
    switch (below(13)) {
      case 0:
        program.erase(at);
        return "drop a step";
      case 1: {
        const Step twice = step;
        program.insert(place(program), twice);
        return "duplicate a step";
      }
      case 2:
        if (at + 1 == program.end()) return {};
        std::iter_swap(at, at + 1);
        return "swap neighbours";
      case 3:
        std::iter_swap(at, program.begin() + below(program.size()));
        return "swap two steps";
      case 4: {
        const Step moved = step;
        program.erase(at);
        Program& other = programs[static_cast<std::size_t>(below(programs.size()))];
        if (other.empty()) return {};
        other.insert(place(other), moved);
        return "move a step to another rank";
      }
      case 5: {
        const Step moved = step;
        program.erase(at);
        program.insert(place(program), moved);
        return "move a step";
      }
      case 6:
        step.peer = below(static_cast<std::size_t>(problem.stages + 2)) - 1;
        return "change a peer";
      case 7:
        step.action.micro_batch = below(static_cast<std::size_t>(problem.micro_batches + 2)) - 1;
        return "change a micro-batch";
      case 8:
        step.action.part = below(static_cast<std::size_t>(problem.parts() + 2)) - 1;
        return "change a part";
      case 9:
        step.action.pass = static_cast<Pass>(below(4));
        return "change a pass";
      case 10:
        step.verb = static_cast<Verb>(below(3));
        return "change a verb";
      case 11:
        step.skip = below(static_cast<std::size_t>(problem.parts() + 1)) - 1;
        return "change a skip";
      default:
        std::swap(program, programs[static_cast<std::size_t>(below(programs.size()))]);
        return "swap ranks";
    }
  }

 private:
  std::mt19937_64 rng_;
};

struct Tally {
  int made = 0, bad = 0, rejected_harmless = 0, accepted = 0;
};

TEST_CASE("the verifier rejects every mutant that the judge finds bad") {
  constexpr int wanted = 10000;
  std::map<std::string, Tally> tallies;
  Tally all;
  Mutator mutator(20240607);
  for (int made = 0; made < wanted;) {
    const Problem problem = mutator.problem();
    const std::vector<Program> valid = schedule(problem);
    auto mutant = valid;
    const std::string how = mutator.damage(problem, mutant);
    if (how.empty() || mutant == valid) continue;
    ++made;
    const auto seed = static_cast<std::uint64_t>(made);
    std::vector<int> room;
    for (int rank = 0; rank < problem.stages; ++rank) room.push_back(stash_bound(problem, rank));
    const auto judgement = testing::judge(problem, mutant, seed, room);
    const Verdict verdict = verify(problem, mutant);
    const bool caught = judgement.good || !verdict.ok;
    CHECK_MESSAGE(caught, "accepted though bad: ", how, " in ", name(problem.kind), ", ",
                  problem.stages, " stages, ", problem.micro_batches,
                  " micro-batches: ", judgement.why);
    CHECK(verdict.ok == verdict.why.empty());
    for (Tally* tally : {&tallies[how], &all}) {
      ++tally->made;
      tally->bad += !judgement.good;
      tally->rejected_harmless += judgement.good && !verdict.ok;
      tally->accepted += verdict.ok;
    }
  }
  for (const auto& [how, tally] : tallies) {
    MESSAGE(how, ": ", tally.made, " mutants, bad ", tally.bad, ", rejected though harmless ",
            tally.rejected_harmless, ", accepted ", tally.accepted);
    CHECK(tally.bad > 0);
  }
  MESSAGE("of ", wanted, " mutants: judged bad ", all.bad, ", rejected though harmless ",
          all.rejected_harmless, ", accepted ", all.accepted);
  CHECK(tallies.size() == 13);
  CHECK(all.bad > wanted / 2);
  CHECK(all.accepted > 0);
  CHECK(all.rejected_harmless < wanted / 4);
}

}  // namespace
}  // namespace peal::comm::pipeline
