// SPDX-License-Identifier: Apache-2.0
#pragma once

// Slots: the one-shot all_reduce of ranks that share memory, for small buffers. One meeting, and no
// rank waits for what another has computed.
//
// Each rank copies its `in` into its own room, and meets the others. Then every rank adds all of
// them, in the order of ranks, and has the sum.
//
// Why one meeting is enough: a room's half is used again by the operation after the next, and who
// begins that has heard from all ranks in the one between (schedule.h, `room`).
//
// Cost a rank, n elements: one round of signals, n(p-1) additions, n elements of room. The node
// reads p^2 n elements: beyond some size the slices of staged_slices.h are cheaper. Every element
// is reduced by the same tree, ((0 + 1) + 2) + ..

#include <peal/comm/algorithms/entry.h>
#include <peal/comm/algorithms/meeting.h>

#include <vector>

namespace peal::comm {

inline Program slots_all_reduce(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const Block all{0, problem.counts[0]};
  std::vector<Span> sources;
  // Its own contribution lies in `in` as well, which no other writes.
  for (int r = 0; r < p; ++r) sources.push_back(r == rank ? in(all) : of(r, rank, room(all)));
  Program program;
  program.room = p > 1 ? all.count : 0;
  if (p > 1) add(program, {copy(room(all), in(all))});
  add_meeting(program, rank, p);
  add_combination(program, {out(all)}, sources);
  return program;
}

inline constexpr Entry slots_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "slots",
    .make = slots_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {{t.p > 1 ? 1 : 0, 0, 0, t.n * t.others}, true};
    },
};

}  // namespace peal::comm
