// SPDX-License-Identifier: Apache-2.0
#pragma once

// Parts that one-sided programs are made of.

#include <peal/comm/schedule/schedule.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace peal::comm {

// A barrier by signals, of some ranks, ascending: all that any of them did in its rounds before
// happens before all that any does in its rounds after.
inline void add_meeting(Program& program, int rank, const std::vector<int>& ranks) {
  const int world = static_cast<int>(ranks.size());
  const int me = static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin());
  const auto at = [&](int i) { return ranks[static_cast<std::size_t>(wrap(i, world))]; };
  Round round;
  for (int k = 1; k < world; ++k) {
    round.push_back(signal(at(me + k)));
    round.push_back(await(at(me - k)));
  }
  add(program, std::move(round));
}
// Of all.
inline void add_meeting(Program& program, int rank, int world) {
  std::vector<int> ranks(static_cast<std::size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  add_meeting(program, rank, ranks);
}

// Every span of `targets` becomes sources[0] (+) sources[1] (+) .. , all of one count. It is built
// up in scratch from its beginning on, in consecutive rounds of one step, and then copied: an
// executor does all of them in one pass, and keeps the sum in registers (plan.h).
inline void add_combination(Program& program, const std::vector<Span>& targets,
                            const std::vector<Span>& sources) {
  const Span sum = scratch({0, sources.front().count});
  if (sum.count == 0) return;
  program.scratch = std::max(program.scratch, sum.count);
  bool first = true;
  for (const Span& source : sources) {
    program.rounds.push_back({first ? copy(sum, source) : reduce(sum, source)});
    first = false;
  }
  Round store;
  for (const Span& target : targets) store.push_back(copy(target, sum));
  program.rounds.push_back(std::move(store));
}

// The same span of every rank, by rank.
inline std::vector<Span> of_all(const Problem& problem, Span span) {
  std::vector<Span> all;
  for (int r = 0; r < problem.world; ++r) all.push_back(of(r, problem.rank, span));
  return all;
}

// The blocks of an all_to_all as one rank needs them.
class AllToAllBlocks {
 public:
  explicit AllToAllBlocks(const Problem& problem)
      : world_(problem.world), rank_(problem.rank), blocks_(problem.counts) {
    std::int64_t at = 0;
    for (int r = 0; r < world_; ++r) {
      const std::int64_t count = blocks_[r * world_ + rank_].count;
      from_.push_back({at, count});
      at += count;
    }
  }
  // What rank r sends here: in this rank's `out`, and in rank r's `in`.
  Block from(int r) const { return from_[static_cast<std::size_t>(r)]; }
  Block at_sender(int r) const { return in_of(r, rank_); }
  // What rank `sender` has for rank `to`, in its `in`.
  Block in_of(int sender, int to) const {
    const Block b = blocks_[sender * world_ + to];
    return {b.at - blocks_[sender * world_].at, b.count};
  }

 private:
  int world_, rank_;
  Blocks blocks_;
  std::vector<Block> from_;
};

}  // namespace peal::comm
