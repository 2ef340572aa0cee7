// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pairwise exchange: reduce_scatter and all_to_all, where every block goes straight from the rank
// that has it to the rank that wants it.
//
// In round k = 1 .. p-1 rank r sends its block for rank r + k there, and receives one of its own
// from rank r - k. So at any time everyone sends to one rank and receives from one. A
// reduce_scatter adds what comes, in that order; each block is summed by its owner alone.
//
// Cost, n elements: p-1 rounds, n(p-1)/p sent, for the reduce_scatter as many added. No scratch.
//
// Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of collective communication operations
// in MPICH, Int. J. High Performance Computing Applications 19 (2005), the sections on
// reduce-scatter and all-to-all.

#include <peal/comm/algorithms/entry.h>

#include <vector>

namespace peal::comm {

inline Program pairwise_reduce_scatter(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const Blocks block(problem.counts);
  const Span own = out({0, block[rank].count});
  Program program;
  add(program, {copy(own, in(block[rank]))});
  for (int k = 1; k < p; ++k) {
    add(program,
        {send(wrap(rank + k, p), in(block[rank + k])), recv_reduce(wrap(rank - k, p), own)});
  }
  return program;
}

inline constexpr Entry pairwise_reduce_scatter_entry{
    .what = Collective::reduce_scatter,
    .name = "pairwise",
    .make = pairwise_reduce_scatter,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.once(t.others, true), t.equal};
    },
};

inline Program pairwise_all_to_all(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const auto world = static_cast<std::size_t>(p), me = static_cast<std::size_t>(rank);
  const Blocks row(problem.counts.subspan(me * world, world));
  std::vector<std::int64_t> column;
  for (std::size_t sender = 0; sender < world; ++sender) {
    column.push_back(problem.counts[sender * world + me]);
  }
  const Blocks arriving(column);
  Program program;
  add(program, {copy(out(arriving[rank]), in(row[rank]))});
  for (int k = 1; k < p; ++k) {
    add(program, {send(wrap(rank + k, p), in(row[rank + k])),
                  recv(wrap(rank - k, p), out(arriving[rank - k]))});
  }
  return program;
}

inline constexpr Entry pairwise_all_to_all_entry{
    .what = Collective::all_to_all,
    .name = "pairwise",
    .make = pairwise_all_to_all,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.once(t.others, false), t.equal};
    },
};

}  // namespace peal::comm
