// SPDX-License-Identifier: Apache-2.0
#pragma once

// Swing: halving and doubling for machines wired as a ring or torus, where far partners share
// links.
//
// Vocabulary. p = 2^m ranks, and as many blocks. The partner of rank r in round k is r + d(k) if r
// is even and r - d(k) if it is odd, with d(k) = (1 - (-2)^(k+1)) / 3 = 1, -1, 3, -5, 11, ..: the
// partners swing from one side to the other and stay about half as far away as those of recursive
// halving.
//
// Charge. A rank is in charge of its own block after the last round; before round k, of what it is
// in charge of after it and what its partner of that round is: 2^(m-k) blocks, all of them before
// round 0. Reduce phase: in round k each gives the partner the partials of the partner's charge,
// and adds those of its own. Gather phase: the same rounds backwards with finished blocks. These
// are the invariants of rabenseifner.h, but a charge is scattered over the buffer: each of its runs
// of adjacent blocks is a message of its own.
//
// Cost: as Rabenseifner's, 2 log2(p) rounds, 2n(p-1)/p sent, n(p-1)/p added.
//
// Source: D. De Sensi, T. Bonato, D. Saam, T. Hoefler, Swing: short-cutting rings for higher
// bandwidth allreduce, NSDI 2024; the plain form.

#include <peal/comm/algorithms/entry.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

namespace peal::comm {

class SwingPartners {
 public:
  explicit SwingPartners(int world) : world_(world) {}

  int rounds() const { return std::bit_width(static_cast<unsigned>(world_)) - 1; }
  int partner(int rank, int round) const {
    const int distance = (1 - ((round + 1) % 2 == 0 ? 1 : -1) * (2 << round)) / 3;
    return wrap(rank % 2 == 0 ? rank + distance : rank - distance, world_);
  }
  // The blocks that a rank is in charge of before a round, as runs of adjacent ones.
  std::vector<Block> charge(int rank, int round, const Blocks& block) const {
    std::vector<int> ranks{rank};
    for (int k = round; k < rounds(); ++k) {
      const std::size_t known = ranks.size();
      for (std::size_t i = 0; i < known; ++i) ranks.push_back(partner(ranks[i], k));
    }
    std::ranges::sort(ranks);
    std::vector<Block> runs;
    for (const int r : ranks) {
      const Block next = block[r];
      if (!runs.empty() && runs.back().at + runs.back().count == next.at) {
        runs.back().count += next.count;
      } else {
        runs.push_back(next);
      }
    }
    return runs;
  }

 private:
  int world_;
};

inline Program swing_all_reduce(const Problem& problem) {
  const int rank = problem.rank;
  const SwingPartners swing(problem.world);
  const Blocks block = Blocks::balanced(problem.counts[0], problem.world, problem.align);
  Program program;
  add(program, {copy(out(block.all()), in(block.all()))});
  for (int k = 0; k < swing.rounds(); ++k) {
    const int partner = swing.partner(rank, k);
    Round round;
    for (const Block& b : swing.charge(partner, k + 1, block))
      round.push_back(send(partner, out(b)));
    for (const Block& b : swing.charge(rank, k + 1, block)) {
      round.push_back(recv_reduce(partner, out(b)));
    }
    add(program, std::move(round));
  }
  for (int k = swing.rounds() - 1; k >= 0; --k) {
    const int partner = swing.partner(rank, k);
    Round round;
    for (const Block& b : swing.charge(rank, k + 1, block)) round.push_back(send(partner, out(b)));
    for (const Block& b : swing.charge(partner, k + 1, block)) {
      round.push_back(recv(partner, out(b)));
    }
    add(program, std::move(round));
  }
  return program;
}

inline constexpr Entry swing_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "swing",
    .make = swing_all_reduce,
    .supports = power_of_two,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.twice(2 * t.up), t.equal};
    },
};

}  // namespace peal::comm
