// SPDX-License-Identifier: Apache-2.0
#pragma once

// Barrier by signals, of ranks that share memory: each signals all others and awaits the same of
// them. One round, which costs every rank a line of the cache from each other one.
// Source: barriers by flags (Mellor-Crummey and Scott 1991 is on them), here one for each pair.

#include <peal/comm/algorithms/entry.h>
#include <peal/comm/algorithms/meeting.h>

namespace peal::comm {

inline Program signals_barrier(const Problem& problem) {
  Program program;
  add_meeting(program, problem.rank, problem.world);
  return program;
}

inline constexpr Entry signals_barrier_entry{
    .what = Collective::barrier,
    .name = "signals",
    .make = signals_barrier,
    .costs = [](const Problem& problem) -> ClosedForm {
      return {{problem.world > 1 ? 1 : 0, 0, 0, 0}, true};
    },
    .one_sided = true,
    .at_once = true,
};

}  // namespace peal::comm
