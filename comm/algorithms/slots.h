// SPDX-License-Identifier: Apache-2.0
#pragma once

// Slots: one-shot collectives of ranks that share memory, for small buffers. One meeting, and no
// rank waits for what another has computed.
//
// Each rank copies what others need of its `in` into its own room, and meets them. Then every rank
// takes what it needs: of a reduction it adds all ranks' elements itself, in their order.
//
// Why one meeting is enough: a room's half is used again by the operation after the next, and who
// begins that has heard from all ranks in the one between (schedule.h, `room`).
//
// Cost a rank: one round of signals, as much room as others need. all_reduce of n elements: n(p-1)
// additions, and the node reads p^2 n elements: beyond some size the slices of staged_slices.h are
// cheaper. Every element is reduced by the same tree, ((0 + 1) + 2) + ..
// Source: what GPUs call one-shot; without a tree as in Open MPI's coll/sm.

#include <peal/comm/algorithms/entry.h>
#include <peal/comm/algorithms/meeting.h>
#include <peal/comm/algorithms/staged_slices.h>

#include <vector>

namespace peal::comm {

// all_reduce, and reduce: only the root adds.
inline Program slots_reduction(const Problem& problem, bool adds) {
  const int p = problem.world, rank = problem.rank;
  const Block all{0, problem.counts[0]};
  // Its own contribution lies in `in` as well, which no other writes.
  std::vector<Span> sources = of_all(problem, room(all));
  sources[static_cast<std::size_t>(rank)] = in(all);
  Program program;
  program.room = p > 1 ? all.count : 0;
  if (p > 1) add(program, {copy(room(all), in(all))});
  add_meeting(program, rank, p);
  if (adds) add_combination(program, {out(all)}, sources);
  return program;
}
inline Program slots_all_reduce(const Problem& problem) { return slots_reduction(problem, true); }
inline Program slots_reduce(const Problem& problem) {
  return slots_reduction(problem, problem.rank == problem.root);
}

// The other collectives do what staged slices do with one chunk, but without their entry.
template <Algorithm staged>
Program slots_by(const Problem& problem) {
  Problem whole = problem;
  const std::int64_t pieces = (longest_of(problem) + problem.align - 1) / problem.align;
  whole.chunk = std::max<std::int64_t>(pieces, 1) * problem.align * problem.world;
  Program program = staged(whole);
  if (problem.world > 1) program.rounds.erase(program.rounds.begin());
  return program;
}

inline ClosedForm costs_of_slots(const Problem& problem) {
  const Terms t(problem);
  const bool whole = problem.what == Collective::all_reduce || problem.what == Collective::reduce;
  const bool blocks = problem.what == Collective::reduce_scatter;
  const bool meets = t.p > 1 && (whole || longest_of(problem) > 0);
  return {{meets ? 1 : 0, 0, 0,
           whole    ? t.n * t.others
           : blocks ? longest_of(problem) * t.others
                    : 0},
          true};
}

constexpr Entry slots_entry(Collective what, Algorithm make) {
  return {.what = what,
          .name = "slots",
          .make = make,
          .costs = costs_of_slots,
          .one_sided = true,
          .at_once = true};
}

}  // namespace peal::comm
