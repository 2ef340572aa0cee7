// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rabenseifner's algorithm, or halving and doubling: an all_reduce with the bytes of the ring in
// twice the rounds of recursive doubling; and its first half, the reduce_scatter.
//
// Vocabulary. q = 2^m ranks take part, by index; the others are folded (fold.h). The buffer is cut
// into q blocks. At any time an index is in charge of a range of blocks: at first of all.
//
// Halving. For bit = q/2, .., 1: the partner's index differs in that bit. The two are in charge of
// the same 2 * bit blocks; the one with the bit set takes the upper half of the range. Each sends
// its partials of the half that it gives up, and adds those that come to the half it keeps.
// Invariant: the partials of a block held by the indices in charge of it add up to the whole sum.
// In the end index i alone is in charge of block i, which is complete.
//
// Doubling. The same partners in reverse order; each sends its range, finished, and the two ranges
// side by side are the next one. Each block is summed in one place and then copied: all ranks get
// the same bits.
//
// Cost, n elements, p = 2^m: halving m rounds, n(p-1)/p sent, n(p-1)/p added; doubling m rounds,
// n(p-1)/p sent. The fold adds two rounds of n elements, and n additions.
//
// Source: R. Rabenseifner, Optimization of collective reduction operations, ICCS 2004; R. Thakur,
// R. Rabenseifner, W. Gropp, Int. J. High Performance Computing Applications 19 (2005).

#include <peal/comm/algorithms/entry.h>
#include <peal/comm/algorithms/fold.h>

namespace peal::comm {

inline Program rabenseifner_all_reduce(const Problem& problem) {
  const int rank = problem.rank;
  const Fold fold(problem.world);
  const Blocks block = Blocks::balanced(problem.counts[0], fold.q, problem.align);

  Program program;
  add(program, {copy(out(block.all()), in(block.all()))});
  if (fold.gives(rank)) {
    add(program, {send(rank + 1, out(block.all()))});
    add(program, {recv(rank + 1, out(block.all()))});
    return program;
  }
  if (fold.stands_in(rank)) add(program, {recv_reduce(rank - 1, out(block.all()))});
  const int index = fold.index(rank);
  for (int bit = fold.q / 2; bit > 0; bit /= 2) {
    const int other = index ^ bit, partner = fold.rank_at(other);
    const Block keep = block.range(index & -bit, bit), give = block.range(other & -bit, bit);
    add(program, {send(partner, out(give)), recv_reduce(partner, out(keep))});
  }
  for (int bit = 1; bit < fold.q; bit *= 2) {
    const int other = index ^ bit, partner = fold.rank_at(other);
    const Block mine = block.range(index & -bit, bit), theirs = block.range(other & -bit, bit);
    add(program, {send(partner, out(mine)), recv(partner, out(theirs))});
  }
  if (fold.stands_in(rank)) add(program, {send(rank - 1, out(block.all()))});
  return program;
}

inline constexpr Entry rabenseifner_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "rabenseifner",
    .make = rabenseifner_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      Terms t(problem);
      const std::int64_t whole = t.folded > 0 ? t.n : 0;
      const int q = 1 << t.down;
      t.cut(q, problem.align);
      const std::int64_t all = t.block * (q - 1);
      return {{2 * t.down + 2 * (t.folded > 0), 2 * all + whole, 2 * all + whole, all + whole},
              t.equal};
    },
};

// The halving alone, for p = 2^m, in scratch, since `in` must stay whole. Scratch holds the half of
// the buffer that the rank keeps in the first round.
inline Program recursive_halving_reduce_scatter(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const Blocks block(problem.counts);
  const Block half = block.range(rank & -(p / 2), p / 2);
  const auto partial = [&](const Block& b) { return scratch({b.at - half.at, b.count}); };

  Program program;
  if (p == 1) {
    add(program, {copy(out(block.all()), in(block.all()))});
    return program;
  }
  program.scratch = half.count;
  add(program, {copy(partial(half), in(half))});
  for (int bit = p / 2; bit > 0; bit /= 2) {
    const int partner = rank ^ bit;
    const Block keep = block.range(rank & -bit, bit), give = block.range(partner & -bit, bit);
    const bool first = bit == p / 2;
    add(program,
        {send(partner, first ? in(give) : partial(give)), recv_reduce(partner, partial(keep))});
  }
  add(program, {copy(out({0, block[rank].count}), partial(block[rank]))});
  return program;
}

inline constexpr Entry recursive_halving_reduce_scatter_entry{
    .what = Collective::reduce_scatter,
    .name = "recursive_halving",
    .make = recursive_halving_reduce_scatter,
    .supports = power_of_two,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.once(t.up, true), t.equal};
    },
};

}  // namespace peal::comm
