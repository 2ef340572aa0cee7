// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/verify/well_formed.h>
#include <peal/launch/tools/schedule/damage.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

namespace peal::launch {
namespace {

using comm::Program;
using comm::Round;
using comm::Step;

constexpr std::string_view damages[] = {"drop", "shift", "peer", "count", "twice", "merge", "swap"};

class Vandal {
 public:
  Vandal(std::vector<Program>& programs, std::uint64_t seed) : programs_(programs), rng_(seed) {}

  // What was done, in words; nothing if this could not be done here.
  std::optional<std::string> damage(std::string_view how) {
    if (how.empty()) how = damages[below(std::size(damages))];
    const std::size_t rank = below(programs_.size());
    auto& rounds = programs_[rank].rounds;
    if (rounds.empty()) return {};
    const std::size_t at = below(rounds.size());
    Round& round = rounds[at];
    const std::size_t which = below(round.size());
    Step& step = round[which];
    const comm::Place place{static_cast<int>(rank), at, which};
    const std::string before = where(programs_[rank], place);
    comm::Span& span = comm::reads_src(step.kind) ? step.src : step.dst;
    if (how == "drop") {
      round.erase(round.begin() + static_cast<std::ptrdiff_t>(which));
      return before + " is left out";
    }
    if (how == "shift") {
      span.at += span.at > 0 ? -1 : 1;
      return before + " is now " + where(programs_[rank], place);
    }
    if (how == "peer") {
      if (step.peer == comm::nobody || programs_.size() < 3) return {};
      const auto last = static_cast<int>(programs_.size()) - 1;
      do {
        step.peer = step.peer == last ? 0 : step.peer + 1;
      } while (step.peer == static_cast<int>(rank));
      return before + " is now " + where(programs_[rank], place);
    }
    if (how == "count") {
      if (span.count < 2) return {};
      if (comm::reads_src(step.kind)) --step.src.count;
      if (comm::writes_dst(step.kind)) --step.dst.count;
      return before + " is now " + where(programs_[rank], place);
    }
    if (how == "twice") {
      rounds.insert(rounds.begin() + static_cast<std::ptrdiff_t>(at), Round{Step(step)});
      return before + " is done twice";
    }
    if (at + 1 >= rounds.size()) return {};
    if (how == "merge") {
      round.insert(round.end(), rounds[at + 1].begin(), rounds[at + 1].end());
      rounds.erase(rounds.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      return fmt::format("rank {} runs rounds {} and {} as one", rank, at, at + 1);
    }
    std::swap(round, rounds[at + 1]);
    return fmt::format("rank {} runs round {} before round {}", rank, at + 1, at);
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(rng_() % n); }

  std::vector<Program>& programs_;
  std::mt19937_64 rng_;
};

}  // namespace

Damaged damaged(const World& world, const std::vector<Program>& valid, const std::string& how,
                std::uint64_t seed) {
  PEAL_CHECK(how.empty() || std::ranges::find(damages, how) != std::end(damages),
             "break: there is no damage '", how,
             "'; there are: drop shift peer count twice merge swap");
  constexpr int tries = 1000;  // some damages cannot be done, and some do no harm
  for (int i = 0; i < tries; ++i) {
    auto programs = valid;
    const auto done = Vandal(programs, seed * tries + static_cast<std::uint64_t>(i)).damage(how);
    if (!done) continue;
    comm::Verdict verdict = verify(world.problem(), programs, comm::Aliasing::out_of_place);
    if (!verdict.ok) return {std::move(programs), *done, std::move(verdict)};
  }
  fail(fmt::format("break: of {} damages none did any harm", tries));
}

}  // namespace peal::launch
