// SPDX-License-Identifier: Apache-2.0
#pragma once

// Direct gather and scatter: the root exchanges one message with everyone, all in one round.
//
// Cost, n elements in all: one round; the root receives (sends) n(p-1)/p, everyone else a block.
// Every element travels once, but the root takes p-1 messages: for large blocks and few ranks.
// Source: the linear algorithms of MPI libraries (Open MPI: coll/basic).

#include <peal/comm/algorithms/entry.h>

#include <utility>

namespace peal::comm {

inline Program direct_gather(const Problem& problem) {
  const int rank = problem.rank;
  const Blocks block(problem.counts);
  const Span mine = in({0, block[rank].count});
  Program program;
  if (rank != problem.root) {
    add(program, {send(problem.root, mine)});
    return program;
  }
  Round round{copy(out(block[rank]), mine)};
  for (int r = 0; r < problem.world; ++r) {
    if (r != rank) round.push_back(recv(r, out(block[r])));
  }
  add(program, std::move(round));
  return program;
}

inline constexpr Entry direct_gather_entry{
    .what = Collective::gather,
    .name = "direct",
    .make = direct_gather,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {{t.p > 1, t.p > 1 ? t.block : 0, t.block * t.others, 0}, t.equal};
    },
};

inline Program direct_scatter(const Problem& problem) {
  const int rank = problem.rank;
  const Blocks block(problem.counts);
  const Span mine = out({0, block[rank].count});
  Program program;
  if (rank != problem.root) {
    add(program, {recv(problem.root, mine)});
    return program;
  }
  Round round{copy(mine, in(block[rank]))};
  for (int r = 0; r < problem.world; ++r) {
    if (r != rank) round.push_back(send(r, in(block[r])));
  }
  add(program, std::move(round));
  return program;
}

inline constexpr Entry direct_scatter_entry{
    .what = Collective::scatter,
    .name = "direct",
    .make = direct_scatter,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {{t.p > 1, t.block * t.others, t.p > 1 ? t.block : 0, 0}, t.equal};
    },
};

}  // namespace peal::comm
