// SPDX-License-Identifier: Apache-2.0
#pragma once

// Broadcast down a binomial tree: every rank that has the message passes it on, so their number
// doubles.
//
// Vocabulary. A rank's place is its distance from the root round the circle of ranks; the root has
// place 0. The lowest bit set in a place is its reach: place v with reach s is the root of the
// subtree v .. v+s-1, and its parent is v - s. The root reaches everybody.
//
// Invariant: when the holders' subtrees have shrunk to s places each, exactly the places that are
// multiples of s have the message. A holder halves its subtree: it sends to place v + s/2, which
// takes over the upper half.
//
// Cost, n elements: ceil(log2 p) rounds from the first send to the last arrival; the root sends
// n * ceil(log2 p), a leaf nothing. The root sends from `in` and makes its own copy last, when
// nobody waits.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations
// in MPICH, Int. J. High Performance Computing Applications 19 (2005), the section on broadcast.

#include <peal/comm/algorithms/entry.h>

namespace peal::comm {

inline Program binomial_broadcast(const Problem& problem) {
  const int p = problem.world;
  const int place = wrap(problem.rank - problem.root, p);
  const auto rank_at = [&](int other) { return wrap(other + problem.root, p); };
  const Block all{0, problem.counts[0]};
  const Span message = place == 0 ? in(all) : out(all);
  int reach = 1;
  while (reach < p && (place & reach) == 0) reach *= 2;

  Program program;
  if (place != 0) add(program, {recv(rank_at(place - reach), message)});
  for (int half = reach / 2; half > 0; half /= 2) {
    if (place + half < p) add(program, {send(rank_at(place + half), message)});
  }
  if (place == 0) add(program, {copy(out(all), message)});
  return program;
}

inline constexpr Entry binomial_broadcast_entry{
    .what = Collective::broadcast,
    .name = "binomial",
    .make = binomial_broadcast,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {{t.up, t.n * t.up, t.p > 1 ? t.n : 0, 0}, t.n > 0};
    },
};

}  // namespace peal::comm
