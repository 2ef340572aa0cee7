// SPDX-License-Identifier: Apache-2.0
#pragma once

// Neighbor exchange: all_gather in p / 2 rounds, for an even number of ranks.
//
// Ranks 2i and 2i + 1 are a pair, and so are their blocks. In round 0 the two of a pair exchange
// their own blocks. Then a rank turns to its neighbour on the other side, and back to its partner,
// by turns: each sends the pair of blocks that it received last (at first its own pair), and gets
// one that it lacks. Invariant: after round k, rank r of pair i has k + 1 pairs of blocks, those of
// a run of pairs around i, and what it got last is one end of it. Half the rounds of the ring, with
// messages twice as long, and still only to neighbours.
//
// Cost, n elements: p / 2 rounds, n(p-1)/p sent.
//
// Source: J. Chen, L. Zhang, Y. Zhang, W. Yuan, Performance evaluation of allgather algorithms on
// terascale Linux cluster with fast Ethernet, HPC Asia (2005).

#include <peal/comm/algorithms/entry.h>

#include <utility>

namespace peal::comm {

inline Program neighbor_exchange_all_gather(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const Blocks block(problem.counts);
  Program program;
  add(program, {copy(out(block[rank]), in({0, block[rank].count}))});
  if (p == 1) return program;
  const int right = rank % 2 == 0 ? 1 : -1;  // where the partner is
  const int partner = rank + right, other = wrap(rank - right, p), own = rank - rank % 2;
  add(program, {send(partner, out(block[rank])), recv(partner, out(block[partner]))});
  int last = own;
  // What comes from the partner is right of all that was there, for an even rank, and what comes
  // from the other left of it; for an odd rank it is the other way round.
  int from_partner = own, from_other = own;
  for (int round = 1; round < p / 2; ++round) {
    const bool turned = round % 2 == 1;
    int& next = turned ? from_other : from_partner;
    next = wrap(next + (turned ? -2 : 2) * right, p);
    Round exchange;
    const int peer = turned ? other : partner;
    for (const Block& b : block.run(last, 2)) exchange.push_back(send(peer, out(b)));
    for (const Block& b : block.run(next, 2)) exchange.push_back(recv(peer, out(b)));
    add(program, std::move(exchange));
    last = next;
  }
  return program;
}

inline constexpr Entry neighbor_exchange_all_gather_entry{
    .what = Collective::all_gather,
    .name = "neighbor_exchange",
    .make = neighbor_exchange_all_gather,
    .supports = {"even", [](int world) { return world == 1 || world % 2 == 0; }},
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.once(t.p / 2, false), t.equal};
    },
};

}  // namespace peal::comm
