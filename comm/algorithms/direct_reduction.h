// SPDX-License-Identifier: Apache-2.0
#pragma once

// Direct reduction: every rank sends each other one its part of the buffer as it is, and nobody
// passes on a sum that is half made.
//
// Vocabulary. Block i is rank i's: its own block of a reduce_scatter; of an all_reduce the i-th of
// p slices.
//
// Round 1: rank r sends block i of its `in` to rank i, for all i at once, and receives block r of
// all others into scratch. Then it adds them and its own in the order of ranks, in one combination.
// all_reduce, round 2: it sends the sum to all others, and receives theirs.
//
// What it is for: f16 and bf16. What travels are inputs and finished sums, so both can go as the
// two bytes that they are, while the sum is made in f32 and rounded once. An algorithm that passes
// on partial sums has to send them in f32, or rounds them at every hop.
//
// Cost a rank, n elements: one round, n(p-1)/p sent and added; an all_reduce two rounds and twice
// as much sent. Scratch for n elements. p-1 messages at a time: for few ranks, or large blocks.
// Every element is reduced by the same tree, ((0 + 1) + 2) + ..
//
// Source: of common use; the exchange is that of a personalised all-to-all.

#include <peal/comm/algorithms/entry.h>
#include <peal/comm/algorithms/meeting.h>

#include <utility>
#include <vector>

namespace peal::comm {

// Round 1 and the combination, into `sum`.
inline Program direct_sum(const Problem& problem, const Blocks& block, const Span& sum) {
  const int p = problem.world, rank = problem.rank;
  const std::int64_t own = block[rank].count;
  Program program;
  if (p == 1) {
    add(program, {copy(sum, in(block[0]))});
    return program;
  }
  std::vector<Span> sources(static_cast<std::size_t>(p), in(block[rank]));
  Round round;
  for (int k = 1; k < p; ++k) {
    const int to = wrap(rank + k, p), from = wrap(rank - k, p);
    const Span arriving = scratch({k * own, own});  // the combination's sum stands before them
    sources[static_cast<std::size_t>(from)] = arriving;
    round.push_back(send(to, in(block[to])));
    round.push_back(recv(from, arriving));
  }
  program.scratch = p * own;
  add(program, std::move(round));
  add_combination(program, {sum}, sources);
  return program;
}

inline Program direct_reduce_scatter(const Problem& problem) {
  const Blocks block(problem.counts);
  return direct_sum(problem, block, out({0, block[problem.rank].count}));
}

inline Program direct_all_reduce(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const Blocks block = Blocks::balanced(problem.counts[0], p, problem.align);
  Program program = direct_sum(problem, block, out(block[rank]));
  Round round;
  for (int k = 1; k < p; ++k) {
    round.push_back(send(wrap(rank + k, p), out(block[rank])));
    round.push_back(recv(wrap(rank - k, p), out(block[rank - k])));
  }
  add(program, std::move(round));
  return program;
}

inline constexpr Entry direct_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "direct",
    .make = direct_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.twice(t.p > 1 ? 2 : 0), t.equal};
    },
    .at_once = true,
};

inline constexpr Entry direct_reduce_scatter_entry{
    .what = Collective::reduce_scatter,
    .name = "direct",
    .make = direct_reduce_scatter,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.once(t.p > 1 ? 1 : 0, true), t.equal};
    },
    .at_once = true,
};

}  // namespace peal::comm
