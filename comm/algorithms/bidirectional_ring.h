// SPDX-License-Identifier: Apache-2.0
#pragma once

// Two rings at once: an all_reduce that uses the links of a circle in both directions.
//
// The buffer is cut into halves. On the first, everything happens as in ring.h, to the right: the
// partial sum of each of its p blocks walks once round the circle, and then the finished block
// does. On the second half it happens to the left, with all signs changed. The two never touch the
// same elements, so their rounds are one: k of the one with k of the other.
//
// Cost a rank, n elements: 2(p-1) rounds, in each of which a message of n/2p goes out on either
// side; in all 2n(p-1)/p sent and n(p-1)/p added. On a machine where a rank sends to both
// neighbours at full speed it takes half the time of the ring; elsewhere it gains nothing.
//
// Source: P. Sack, W. Gropp, Collective algorithms for multiported torus networks, ACM Trans.
// Parallel Computing 1 (2015), of which this is the torus of one dimension.

#include <peal/comm/algorithms/entry.h>

namespace peal::comm {

inline Program bidirectional_ring_all_reduce(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const int next = wrap(rank + 1, p), previous = wrap(rank - 1, p);
  const Blocks half = Blocks::balanced(problem.counts[0], 2, problem.align);
  const Blocks up = Blocks::balanced(half[0].count, p, problem.align);
  const Blocks low = Blocks::balanced(half[1].count, p, problem.align);
  const auto down = [&](int i) { return Block{half[1].at + low[i].at, low[i].count}; };

  Program program;
  add(program, {copy(out(half.all()), in(half.all()))});
  for (int k = 0; k < p - 1; ++k) {
    add(program, {send(next, out(up[rank - k])), recv_reduce(previous, out(up[rank - k - 1])),
                  send(previous, out(down(rank + k))), recv_reduce(next, out(down(rank + k + 1)))});
  }
  for (int k = 0; k < p - 1; ++k) {
    add(program, {send(next, out(up[rank + 1 - k])), recv(previous, out(up[rank - k])),
                  send(previous, out(down(rank - 1 + k))), recv(next, out(down(rank + k)))});
  }
  return program;
}

inline constexpr Entry bidirectional_ring_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "bidirectional_ring",
    .make = bidirectional_ring_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      Terms t(problem);
      const Blocks halves = Blocks::balanced(t.n, 2, problem.align);
      const Blocks up = Blocks::balanced(halves[0].count, t.p, problem.align);
      const Blocks down = Blocks::balanced(halves[1].count, t.p, problem.align);
      t.block = up.largest() + down.largest();
      return {t.twice(2 * t.others), t.n > 0 && t.block * t.p == t.n};
    },
};

}  // namespace peal::comm
