// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/verify/happens_before.h>

#include <algorithm>

namespace peal::comm {

HappensBefore::HappensBefore(std::span<const Program> programs, const Topology& nodes)
    : programs_(programs),
      nodes_(nodes),
      clocks_(programs.size(), std::vector<std::int64_t>(programs.size(), 0)),
      heard_(clocks_),
      accesses_(programs.size()) {
  for (const Program& program : programs) {
    for (const Round& round : program.rounds) {
      for (const Step& step : round) {
        one_sided_ = one_sided_ || is_one_sided(step);
      }
    }
  }
}

void HappensBefore::begin_round(int rank, std::size_t round) {
  auto& clock = clocks_[static_cast<std::size_t>(rank)];
  const auto& heard = heard_[static_cast<std::size_t>(rank)];
  std::ranges::transform(clock, heard, clock.begin(),
                         [](auto a, auto b) { return std::max(a, b); });
  clock[static_cast<std::size_t>(rank)] = static_cast<std::int64_t>(round) + 1;
}

void HappensBefore::hear(int rank, const std::vector<std::int64_t>& clock) {
  auto& heard = heard_[static_cast<std::size_t>(rank)];
  std::ranges::transform(heard, clock, heard.begin(),
                         [](auto a, auto b) { return std::max(a, b); });
}

bool HappensBefore::covers(int rank, const Place& earlier) const {
  const auto done = static_cast<std::int64_t>(earlier.round) + 2;  // it has begun, and that round
  return clocks_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(earlier.rank)] >= done;
}

void HappensBefore::touch(const Place& p, int owner, std::int64_t begin, std::int64_t count,
                          bool write, bool lives_on) {
  if (!one_sided_ || count == 0) return;
  const auto here = [&](const Place& place) {
    return where(programs_[static_cast<std::size_t>(place.rank)], place);
  };
  if (!lives_on && !has_heard(p.rank, owner)) {
    reject(here(p), ": expected a chain of signals from rank ", owner,
           " first, got none: it may not have begun");
  }
  const std::int64_t end = begin + count;
  auto& all = accesses_[static_cast<std::size_t>(owner)];
  for (const Access& a : all) {
    const bool conflict = (write || a.write) && a.begin < end && begin < a.end;
    // The steps of one round have been compared before the run.
    const bool same_round = a.place.rank == p.rank && a.place.round == p.round;
    if (!conflict || same_round || covers(p.rank, a.place)) continue;
    reject(here(p), ": expected a chain of signals from ", here(a.place), ", which ",
           a.write ? "writes" : "reads", " the same elements, got none: a race");
  }
  all.push_back({p, begin, end, write, lives_on});
}

void HappensBefore::check_ends() const {
  if (!one_sided_) return;
  for (std::size_t owner = 0; owner < accesses_.size(); ++owner) {
    for (const Access& a : accesses_[owner]) {
      if (a.lives_on || covers(static_cast<int>(owner), a.place)) continue;
      reject("rank ", owner, " ends: expected a chain of signals from ",
             where(programs_[static_cast<std::size_t>(a.place.rank)], a.place),
             ", which touches its memory, got none: it may come later");
    }
  }
  const int world = static_cast<int>(clocks_.size());
  for (int rank = 0; rank < world; ++rank) {
    for (int other = 0; other < world; ++other) {
      if (!share_memory(nodes_, rank, other) || has_heard(rank, other)) continue;
      reject("rank ", rank,
             " ends: expected a chain of signals from every rank of its node, got none from rank ",
             other, ": the operation after this may use the half of the room that it still reads");
    }
  }
}

}  // namespace peal::comm
