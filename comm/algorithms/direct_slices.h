// SPDX-License-Identifier: Apache-2.0
#pragma once

// Direct slices: collectives of ranks that see each other's memory. They move no more bytes over
// the bus of a node than must be moved.
//
// All are alike. Entry: every rank signals all others that its buffers are there, and awaits the
// same of them. Work: each does its part, with the others' buffers where they lie. Exit: every rank
// signals that it touches no buffer any more, and awaits the same; then all results are there.
//
// all_reduce, reduce. The buffer is cut into p slices; slice i is rank i's work, in all buffers: it
// adds slice i of all `in`, in the order of ranks, and stores the sum into slice i of all `out`, or
// of the root's. No race, in place too: slice i of any buffer is touched by rank i alone, and read
// before it is written. reduce_scatter: rank i adds block i of all `in` into its own `out`. The
// others only copy: each rank what it is to have, out of the `in` of others; and in a gather what
// it has, into the root's `out`.
//
// Cost a rank: two rounds of signals, no messages. all_reduce of n elements: n(p-1)/p additions,
// and the node reads pn and writes pn elements in all, the lower bound. Every element is reduced by
// the same tree, ((0 + 1) + 2) + .., whatever the slices.
// Source: what GPUs call two-shot; over processes that map each other's memory as Open MPI's
// coll/xhc does.
//
// Needs buffers that others reach; staged_slices.h is for those that are not.

#include <peal/comm/algorithms/entry.h>
#include <peal/comm/algorithms/meeting.h>

#include <vector>

namespace peal::comm {

// f(program) between the two meetings.
template <class F>
Program between_meetings(const Problem& problem, F f) {
  Program program;
  add_meeting(program, problem.rank, problem.world);
  f(program);
  add_meeting(program, problem.rank, problem.world);
  return program;
}

inline Program direct_slices_all_reduce(const Problem& problem) {
  const Block slice =
      Blocks::balanced(problem.counts[0], problem.world, problem.align)[problem.rank];
  return between_meetings(problem, [&](Program& program) {
    add_combination(program, of_all(problem, out(slice)), of_all(problem, in(slice)));
  });
}

inline Program direct_slices_reduce(const Problem& problem) {
  const Block slice =
      Blocks::balanced(problem.counts[0], problem.world, problem.align)[problem.rank];
  return between_meetings(problem, [&](Program& program) {
    add_combination(program, {of(problem.root, problem.rank, out(slice))},
                    of_all(problem, in(slice)));
  });
}

inline Program direct_slices_reduce_scatter(const Problem& problem) {
  const Block mine = Blocks(problem.counts)[problem.rank];
  return between_meetings(problem, [&](Program& program) {
    add_combination(program, {out({0, mine.count})}, of_all(problem, in(mine)));
  });
}

inline Program direct_slices_all_gather(const Problem& problem) {
  const Blocks block(problem.counts);
  return between_meetings(problem, [&](Program& program) {
    Round copies;
    for (int k = 0; k < problem.world; ++k) {  // not all from rank 0 at once
      const int r = wrap(problem.rank + k, problem.world);
      copies.push_back(copy(out(block[r]), of(r, problem.rank, in({0, block[r].count}))));
    }
    add(program, std::move(copies));
  });
}

inline Program direct_slices_all_to_all(const Problem& problem) {
  const AllToAllBlocks blocks(problem);
  return between_meetings(problem, [&](Program& program) {
    Round copies;
    for (int k = 0; k < problem.world; ++k) {
      const int r = wrap(problem.rank + k, problem.world);
      copies.push_back(copy(out(blocks.from(r)), of(r, problem.rank, in(blocks.at_sender(r)))));
    }
    add(program, std::move(copies));
  });
}

inline Program direct_slices_broadcast(const Problem& problem) {
  const Block all{0, problem.counts[0]};
  return between_meetings(problem, [&](Program& program) {
    add(program, {copy(out(all), of(problem.root, problem.rank, in(all)))});
  });
}

inline Program direct_slices_scatter(const Problem& problem) {
  const Block mine = Blocks(problem.counts)[problem.rank];
  return between_meetings(problem, [&](Program& program) {
    add(program, {copy(out({0, mine.count}), of(problem.root, problem.rank, in(mine)))});
  });
}

inline Program direct_slices_gather(const Problem& problem) {
  const Block mine = Blocks(problem.counts)[problem.rank];
  return between_meetings(problem, [&](Program& program) {
    add(program, {copy(of(problem.root, problem.rank, out(mine)), in({0, mine.count}))});
  });
}

// n elements that are reduced are cut into slices, blocks are not; what is copied costs no more
// than its meetings.
inline ClosedForm costs_of_direct_slices(const Problem& problem) {
  const Terms t(problem);
  const bool reduces = is_reduction(problem.what);
  const bool sliced = problem.what != Collective::reduce_scatter;
  return {{t.p > 1 ? 2 : 0, 0, 0, reduces ? t.block * t.others : 0},
          !reduces || !sliced || t.equal};
}

constexpr Entry direct_slices_entry(Collective what, Algorithm make) {
  return {.what = what,
          .name = "direct_slices",
          .make = make,
          .costs = costs_of_direct_slices,
          .one_sided = true,
          .otherwise = "staged_slices",
          .at_once = true};
}

}  // namespace peal::comm
