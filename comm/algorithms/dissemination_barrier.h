// SPDX-License-Identifier: Apache-2.0
#pragma once

// The dissemination barrier: nobody leaves before everybody has come.
//
// In round k every rank sends an empty message 2^k places on round the circle and awaits one from
// 2^k places back. Invariant: after round k a rank knows that the 2^(k+1) ranks up to and including
// itself have come. Knowing some of them twice, when p is no power of two, does no harm; so nothing
// is folded.
//
// Cost: ceil(log2 p) rounds, no bytes.
//
// Source: D. Hensgen, R. Finkel, U. Manber, Two algorithms for barrier synchronization, Int. J.
// Parallel Programming 17 (1988).

#include <peal/comm/algorithms/entry.h>

namespace peal::comm {

inline Program dissemination_barrier(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  constexpr Span nothing{};
  Program program;
  for (int distance = 1; distance < p; distance *= 2) {
    program.rounds.push_back(
        {send(wrap(rank + distance, p), nothing), recv(wrap(rank - distance, p), nothing)});
  }
  return program;
}

inline constexpr Entry dissemination_barrier_entry{
    .what = Collective::barrier,
    .name = "dissemination",
    .make = dissemination_barrier,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {{t.up, 0, 0, 0}, true};
    },
};

}  // namespace peal::comm
