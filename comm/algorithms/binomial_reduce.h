// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reduction up a binomial tree; followed by the broadcast down the same tree, an all_reduce.
//
// Vocabulary as in binomial_broadcast.h: a rank's place is its distance from the root, the lowest
// bit set in a place is its reach.
//
// Invariant: when bits below s have been dealt with, the places that are multiples of s hold,
// together, every contribution once; place v that of v .. v+s-1. Those with bit s set now send
// their sum down to v - s and are done, the others add what comes.
//
// Cost, n elements: ceil(log2 p) rounds from the first send to the last arrival, in each of which
// the root adds n; a leaf sends n once. The all_reduce takes 2 ceil(log2 p) rounds. It is here for
// comparison: recursive doubling takes half of that, and the ring sends less.
//
// One tree for all elements: the result of an element does not depend on where it stands.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations
// in MPICH, Int. J. High Performance Computing Applications 19 (2005), the section on reduce.

#include <peal/comm/algorithms/binomial_broadcast.h>
#include <peal/comm/algorithms/compose.h>
#include <peal/comm/algorithms/entry.h>

#include <numeric>

namespace peal::comm {

// Sums up in `sum`; a leaf sends from `in`.
inline Program binomial_reduce_into(const Problem& problem, Buffer buffer) {
  const int p = problem.world;
  const int place = wrap(problem.rank - problem.root, p);
  const auto rank_at = [&](int other) { return wrap(other + problem.root, p); };
  const Block all{0, problem.counts[0]};
  const Span sum{self, buffer, all.at, all.count};
  const bool leaf = place % 2 == 1 || place + 1 == p;

  Program program;
  if (place == 0 || !leaf) add(program, {copy(sum, in(all))});
  for (int s = 1; s < p; s *= 2) {
    if ((place & s) != 0) {
      add(program, {send(rank_at(place - s), leaf ? in(all) : sum)});
      break;
    }
    if (place + s < p) add(program, {recv_reduce(rank_at(place + s), sum)});
  }
  if (buffer == Buffer::scratch && !leaf) program.scratch = all.count;
  return program;
}

inline Program binomial_reduce(const Problem& problem) {
  const bool root = problem.rank == problem.root;
  return binomial_reduce_into(problem, root ? Buffer::out : Buffer::scratch);
}

inline constexpr Entry binomial_reduce_entry{
    .what = Collective::reduce,
    .name = "binomial",
    .make = binomial_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {{t.up, t.p > 1 ? t.n : 0, t.n * t.up, t.n * t.up}, t.n > 0};
    },
};

inline Program binomial_all_reduce(const Problem& problem) {
  std::vector<int> everyone(static_cast<std::size_t>(problem.world));
  std::iota(everyone.begin(), everyone.end(), 0);
  Program program = binomial_reduce_into(problem, Buffer::out);
  append(program, embed(binomial_broadcast(problem), everyone, out({}), out({})));
  return program;
}

inline constexpr Entry binomial_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "binomial",
    .make = binomial_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {{2 * t.up, t.n * t.up, t.n * t.up, t.n * t.up}, t.n > 0};
    },
};

}  // namespace peal::comm
