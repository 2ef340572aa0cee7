// SPDX-License-Identifier: Apache-2.0
#pragma once

// Direct slices: the all_reduce of ranks that see each other's memory. It moves no more bytes over
// the bus of a node than must be moved.
//
// Vocabulary. The buffer is cut into p slices; slice i is rank i's work, in all buffers.
//
// Entry: every rank signals all others that its buffers are there, and awaits the same of them.
// Work: rank i adds slice i of all `in`, where they lie, in the order of ranks, and stores the sum
// into slice i of all `out`. Exit: every rank signals that it touches no buffer any more, and
// awaits the same; then all results are there.
//
// Why no race, in place too: slice i of any buffer is touched by rank i alone, and it is read
// before it is written. The sum is built up in scratch, which an executor may keep in registers:
// the additions stand in consecutive rounds for it to run in one pass.
//
// Cost a rank, n elements: two rounds of signals, no messages, n(p-1)/p additions. The node reads
// pn and writes pn elements in all, the lower bound. Every element is reduced by the same tree,
// ((0 + 1) + 2) + .., whatever the slices.
//
// Needs symmetric memory.

#include <peal/comm/algorithms/entry.h>

#include <utility>

namespace peal::comm {

inline Program direct_slices_all_reduce(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const Block slice = Blocks::balanced(problem.counts[0], p, problem.align)[rank];
  const auto of = [&](int owner, Span span) {
    if (owner != rank) span.owner = owner;
    return span;
  };
  const auto barrier = [&](Program& program) {
    Round round;
    for (int k = 1; k < p; ++k) {
      round.push_back(signal(wrap(rank + k, p)));
      round.push_back(await(wrap(rank - k, p)));
    }
    add(program, std::move(round));
  };

  Program program{slice.count, {}};
  const Span sum = scratch({0, slice.count});
  barrier(program);
  add(program, {copy(sum, of(0, in(slice)))});
  for (int r = 1; r < p; ++r) add(program, {reduce(sum, of(r, in(slice)))});
  Round store;
  for (int r = 0; r < p; ++r) store.push_back(copy(of(r, out(slice)), sum));
  add(program, std::move(store));
  barrier(program);
  return program;
}

inline constexpr Entry direct_slices_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "direct_slices",
    .make = direct_slices_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {{t.p > 1 ? 2 : 0, 0, 0, t.block * t.others}, t.equal};
    },
};

}  // namespace peal::comm
