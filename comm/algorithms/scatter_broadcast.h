// SPDX-License-Identifier: Apache-2.0
#pragma once

// Broadcast of large messages: scatter, then gather for all.
//
// Vocabulary. A rank's place is its distance from the root round the circle, the lowest bit set in
// a place is its reach (binomial_broadcast.h). The message is cut into p blocks, block[v] for place
// v.
//
// Scatter, down the binomial tree: place v with reach s gets blocks v .. v+s-1, of which it hands
// on the upper half, then the upper half of the rest, and so on. Invariant: a place whose subtree
// has shrunk to s places has at least their blocks. Then the blocks go round a ring over the places
// (ring.h). So the root sends each element about twice, whatever p is.
//
// Cost, n elements: ceil(log2 p) + p-1 rounds; the root sends 2n(p-1)/p, others up to n(p-1)/p
// besides what they hand on.
//
// Source: M. Barnett, L. Shuler, S. Gupta, D. Payne, R. van de Geijn, J. Watts, Interprocessor
// collective communication library (InterCom), SHPCC 1994.

#include <peal/comm/algorithms/compose.h>
#include <peal/comm/algorithms/entry.h>
#include <peal/comm/algorithms/ring.h>

#include <algorithm>
#include <vector>

namespace peal::comm {

inline Program scatter_ring_broadcast(const Problem& problem) {
  const int p = problem.world;
  const int place = wrap(problem.rank - problem.root, p);
  const Blocks block = Blocks::balanced(problem.counts[0], p, problem.align);
  std::vector<int> rank_at;
  for (int v = 0; v < p; ++v) rank_at.push_back(wrap(v + problem.root, p));
  const auto subtree = [&](int v, int reach) { return block.range(v, std::min(reach, p - v)); };
  int reach = 1;
  while (reach < p && (place & reach) == 0) reach *= 2;

  Program program;
  if (place == 0) add(program, {copy(out(block.all()), in(block.all()))});
  if (place != 0) {
    add(program,
        {recv(rank_at[static_cast<std::size_t>(place - reach)], out(subtree(place, reach)))});
  }
  for (int half = reach / 2; half > 0; half /= 2) {
    const int child = place + half;
    if (child >= p) continue;
    add(program, {send(rank_at[static_cast<std::size_t>(child)], out(subtree(child, half)))});
  }

  std::vector<std::int64_t> counts;
  for (int v = 0; v < p; ++v) counts.push_back(block[v].count);
  const Topology nodes = single_node(p);
  const Program ring = ring_all_gather({.what = Collective::all_gather,
                                        .rank = place,
                                        .world = p,
                                        .root = 0,
                                        .counts = counts,
                                        .nodes = nodes});
  append(program, embed(ring, rank_at, out(block[place]), out({})));
  return program;
}

inline constexpr Entry scatter_ring_broadcast_entry{
    .what = Collective::broadcast,
    .name = "scatter_ring",
    .make = scatter_ring_broadcast,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      const std::int64_t received = t.block * (t.others + t.subtree);
      return {{t.up + t.others, 2 * t.block * t.others, received, 0}, t.equal};
    },
};

}  // namespace peal::comm
