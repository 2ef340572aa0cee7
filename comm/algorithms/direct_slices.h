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
// before it is written.
//
// Cost a rank, n elements: two rounds of signals, no messages, n(p-1)/p additions. The node reads
// pn and writes pn elements in all, the lower bound. Every element is reduced by the same tree,
// ((0 + 1) + 2) + .., whatever the slices.
//
// Needs buffers that others reach; staged_slices.h is for those that are not.

#include <peal/comm/algorithms/entry.h>
#include <peal/comm/algorithms/meeting.h>

#include <vector>

namespace peal::comm {

inline Program direct_slices_all_reduce(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const Block slice = Blocks::balanced(problem.counts[0], p, problem.align)[rank];
  std::vector<Span> sources, targets;
  for (int r = 0; r < p; ++r) {
    sources.push_back(of(r, rank, in(slice)));
    targets.push_back(of(r, rank, out(slice)));
  }
  Program program;
  add_meeting(program, rank, p);
  add_combination(program, targets, sources);
  add_meeting(program, rank, p);
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
    .otherwise = "staged_slices",
};

}  // namespace peal::comm
