// SPDX-License-Identifier: Apache-2.0
#pragma once

// Recursive doubling: an all_reduce or all_gather in the fewest rounds. In round k = 0, 1, .. each
// rank exchanges what it has with the one whose number differs in bit k; afterwards the 2^(k+1)
// ranks that agree above bit k have the same.
//
// All_reduce: for messages so small that latency is all. What they have is a partial sum of the
// whole buffer. Other worlds than powers of two are folded (fold.h). Invariant: after round k the
// 2^(k+1) indices that agree above bit k hold the same sum, over exactly themselves. Both partners
// combine the same two numbers, one as a + b and one as b + a, which are the same bits; so all
// ranks end with the same bits, and every element is summed by the same tree.
// Cost, n elements, p = 2^k: log2(p) rounds, each sending n and adding n. Otherwise floor(log2 p) +
// 2 rounds and floor(log2 p) + 1 additions for the ranks that stand in for a folded one.
//
// All_gather, p = 2^k only: what they have are the blocks of those 2^k ranks, which lie side by
// side. Cost: log2(p) rounds, n(p-1)/p elements sent.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations
// in MPICH, Int. J. High Performance Computing Applications 19 (2005), the sections on all-reduce
// and all-gather.

#include <peal/comm/algorithms/entry.h>
#include <peal/comm/algorithms/fold.h>

namespace peal::comm {

inline Program recursive_doubling_all_reduce(const Problem& problem) {
  const int rank = problem.rank;
  const Fold fold(problem.world);
  const Block all{0, problem.counts[0]};

  Program program;
  add(program, {copy(out(all), in(all))});
  if (fold.gives(rank)) {
    add(program, {send(rank + 1, out(all))});
    add(program, {recv(rank + 1, out(all))});
    return program;
  }
  if (fold.stands_in(rank)) add(program, {recv_reduce(rank - 1, out(all))});
  for (int bit = 1; bit < fold.q; bit *= 2) {
    const int partner = fold.rank_at(fold.index(rank) ^ bit);
    program.scratch = all.count;
    add(program, {send(partner, out(all)), recv(partner, scratch(all))});
    add(program, {reduce(out(all), scratch(all))});
  }
  if (fold.stands_in(rank)) add(program, {send(rank - 1, out(all))});
  return program;
}

inline constexpr Entry recursive_doubling_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "recursive_doubling",
    .make = recursive_doubling_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      const bool folds = t.folded > 0;
      const std::int64_t moved = t.n * (t.down + folds);
      return {{t.down + 2 * folds, moved, moved, moved}, t.n > 0};
    },
};

inline Program recursive_doubling_all_gather(const Problem& problem) {
  const int rank = problem.rank;
  const Blocks block(problem.counts);
  Program program;
  add(program, {copy(out(block[rank]), in({0, block[rank].count}))});
  for (int bit = 1; bit < problem.world; bit *= 2) {
    const int partner = rank ^ bit;
    const Block mine = block.range(rank & -bit, bit), theirs = block.range(partner & -bit, bit);
    add(program, {send(partner, out(mine)), recv(partner, out(theirs))});
  }
  return program;
}

inline constexpr Entry recursive_doubling_all_gather_entry{
    .what = Collective::all_gather,
    .name = "recursive_doubling",
    .make = recursive_doubling_all_gather,
    .supports = power_of_two,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.once(t.up, false), t.equal};
    },
};

}  // namespace peal::comm
