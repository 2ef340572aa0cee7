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
// reduce: all blocks are the root's. They come a chunk at a time, so that what has come of one
// stays in its caches until it is added, and takes no more memory than that.
//
// What it is for. First, f16 and bf16: what travels are inputs and finished sums, so both can go as
// the two bytes that they are, while the sum is made in f32 and rounded once. An algorithm that
// passes on partial sums has to send them in f32, or rounds them at every hop. Second, sums that
// have the same bits however a tensor is cut: every element is reduced by the same tree,
// ((0 + 1) + 2) + .., so it is by this that messages reduce in deterministic mode.
//
// Cost a rank, n elements: one round, n(p-1)/p sent and added; an all_reduce two rounds and twice
// as much sent. Scratch for n elements. p-1 messages at a time: for few ranks, or large blocks. A
// reduce in k chunks: k rounds, the root receives and adds n(p-1), and has scratch for p chunks.
//
// Source: of common use; the exchange is that of a personalised all-to-all.

#include <peal/comm/algorithms/compose.h>
#include <peal/comm/algorithms/entry.h>
#include <peal/comm/algorithms/meeting.h>

#include <cstdint>
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

inline Program direct_reduce(const Problem& problem) {
  const int p = problem.world, rank = problem.rank, root = problem.root;
  const Blocks chunk = Blocks::balanced(problem.counts[0], chunks(problem), problem.align);
  Program program;
  if (p == 1) {
    add(program, {copy(out(chunk.all()), in(chunk.all()))});
    return program;
  }
  const std::int64_t longest = chunk.largest();
  for (int c = 0; c < chunk.size(); ++c) {
    if (rank != root) {
      add(program, {send(root, in(chunk[c]))});
      continue;
    }
    std::vector<Span> sources(static_cast<std::size_t>(p), in(chunk[c]));
    Round round;
    for (int k = 1; k < p; ++k) {
      const int from = wrap(rank + k, p);
      const Span arriving = scratch({k * longest, chunk[c].count});
      sources[static_cast<std::size_t>(from)] = arriving;
      round.push_back(recv(from, arriving));
    }
    add(program, std::move(round));
    add_combination(program, {out(chunk[c])}, sources);
  }
  if (rank == root) program.scratch = p * longest;
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

inline constexpr Entry direct_reduce_entry{
    .what = Collective::reduce,
    .name = "direct",
    .make = direct_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      if (t.p == 1) return {{}, true};
      return {{t.k, t.n, t.n * t.others, t.n * t.others}, true};
    },
    .pipelined = true,
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
