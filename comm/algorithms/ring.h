// SPDX-License-Identifier: Apache-2.0
#pragma once

// The ring: all_reduce, reduce_scatter and all_gather with the fewest bytes any algorithm can send.
//
// Vocabulary. p ranks stand in a circle; each sends to the next (rank + 1) and receives from the
// previous (rank - 1) only. The buffer is cut into p blocks; block[i] belongs to rank i, and
// indices go round.
//
// Reduce phase. A partial sum of each block walks once round the circle. In round k rank r passes
// on the partial of block r-k and adds its own numbers to the partial of block r-k-1 that arrives.
// Invariant: after round k, rank r holds block r-k-1 summed over the k+2 ranks r-k-1 .. r. After
// p-1 rounds rank r holds block r+1, complete.
//
// Gather phase. The finished blocks walk round the circle once more, now replacing what they meet.
// Invariant: after round k, rank r holds the k+2 finished blocks r+1, r, .. r-k. Since each block
// is summed in one place and then copied, all ranks get the same bits.
//
// Cost a rank, n elements: each phase p-1 rounds and n(p-1)/p elements sent; the reduce phase adds
// n(p-1)/p. Both are optimal; the price is 2(p-1) latencies.
//
// Source: P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of
// workstations, J. Parallel and Distributed Computing 69 (2009).

#include <peal/comm/algorithms/entry.h>

#include <algorithm>

namespace peal::comm {

inline Program ring_all_reduce(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const int next = wrap(rank + 1, p), previous = wrap(rank - 1, p);
  const Blocks block = Blocks::balanced(problem.counts[0], p, problem.align);
  Program program;
  add(program, {copy(out(block.all()), in(block.all()))});
  for (int k = 0; k < p - 1; ++k) {
    add(program,
        {send(next, out(block[rank - k])), recv_reduce(previous, out(block[rank - k - 1]))});
  }
  for (int k = 0; k < p - 1; ++k) {
    add(program, {send(next, out(block[rank + 1 - k])), recv(previous, out(block[rank - k]))});
  }
  return program;
}

inline constexpr Entry ring_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "ring",
    .make = ring_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.twice(2 * t.others), t.equal};
    },
};

// The reduce phase alone, begun one block earlier so that rank r ends with block r. `in` must stay
// whole, so the walking partials live in two slots of scratch, one being sent while the other is
// filled; the last one is `out`.
inline Program ring_reduce_scatter(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const int next = wrap(rank + 1, p), previous = wrap(rank - 1, p);
  const Blocks block(problem.counts);
  const std::int64_t slot = block.largest();
  Program program{.scratch = std::clamp(p - 2, 0, 2) * slot, .rounds = {}};
  if (p == 1) add(program, {copy(out(block.all()), in(block.all()))});
  Span partial = in(block[rank - 1]);
  for (int k = 0; k < p - 1; ++k) {
    const Block arriving = block[rank - 2 - k];
    const bool last = k == p - 2;
    const Span sum = last ? out({0, arriving.count}) : scratch({k % 2 * slot, arriving.count});
    add(program, {copy(sum, in(arriving))});
    add(program, {send(next, partial), recv_reduce(previous, sum)});
    partial = sum;
  }
  return program;
}

inline constexpr Entry ring_reduce_scatter_entry{
    .what = Collective::reduce_scatter,
    .name = "ring",
    .make = ring_reduce_scatter,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.once(t.others, true), t.equal};
    },
};

// The gather phase alone, begun with the own block.
inline Program ring_all_gather(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const int next = wrap(rank + 1, p), previous = wrap(rank - 1, p);
  const Blocks block(problem.counts);
  Program program;
  add(program, {copy(out(block[rank]), in({0, block[rank].count}))});
  for (int k = 0; k < p - 1; ++k) {
    add(program, {send(next, out(block[rank - k])), recv(previous, out(block[rank - k - 1]))});
  }
  return program;
}

inline constexpr Entry ring_all_gather_entry{
    .what = Collective::all_gather,
    .name = "ring",
    .make = ring_all_gather,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.once(t.others, false), t.equal};
    },
};

}  // namespace peal::comm
