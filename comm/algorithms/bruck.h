// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bruck's algorithms: all_gather and all_to_all in ceil(log2 p) rounds, for any number of ranks.
//
// All_gather. In round k rank r sends the 2^k blocks that it has, its own and those after it, to
// rank r - 2^k, and receives the next 2^k from rank r + 2^k; in the last round only as many as are
// missing. Invariant: after round k rank r has blocks r .. r + 2^(k+1) - 1, indices going round.
// The original keeps them in that order and turns the buffer in the end. Here each block is
// received where it belongs, and a run that passes the end of the buffer travels as two messages of
// the same round. Cost, n elements: ceil(log2 p) rounds, n(p-1)/p sent.
//
// All_to_all. Write the distance from a block's sender to its receiver in binary. In round k every
// block whose distance has bit k moves 2^k ranks on. Invariant: after round k, the block of
// distance d from sender s is at rank s + (d mod 2^(k+1)); after the last, where it belongs. What a
// rank sends in a round is packed in scratch and travels as one message; what comes stays where it
// arrived until it moves on. Cost, n elements a rank, p = 2^m: m rounds, n/2 sent in each. So it
// sends more than pairwise exchange, in fewer messages: for small blocks.
//
// Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby, Efficient algorithms for
// all-to-all communications in multiport message-passing systems, IEEE Trans. Parallel and
// Distributed Systems 8 (1997).

#include <peal/comm/algorithms/entry.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

namespace peal::comm {

inline Program bruck_all_gather(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const Blocks block(problem.counts);
  Program program;
  add(program, {copy(out(block[rank]), in({0, block[rank].count}))});
  for (int have = 1; have < p; have *= 2) {
    const int ahead = wrap(rank + have, p), back = wrap(rank - have, p);
    const int more = std::min(have, p - have);
    Round round;
    for (const Block& b : block.run(rank, more)) round.push_back(send(back, out(b)));
    for (const Block& b : block.run(rank + have, more)) round.push_back(recv(ahead, out(b)));
    add(program, std::move(round));
  }
  return program;
}

inline constexpr Entry bruck_all_gather_entry{
    .what = Collective::all_gather,
    .name = "bruck",
    .make = bruck_all_gather,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.once(t.up, false), t.equal};
    },
};

inline Program bruck_all_to_all(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const auto world = static_cast<std::size_t>(p);
  const auto count = [&](int from, int to) {
    return problem.counts[static_cast<std::size_t>(from) * world + static_cast<std::size_t>(to)];
  };
  const Blocks row(problem.counts.subspan(static_cast<std::size_t>(rank) * world, world));
  std::vector<Span> at;  // by distance: where the block that is here now stands
  for (int d = 0; d < p; ++d) at.push_back(in(row[rank + d]));

  Program program;
  for (int bit = 1; bit < p; bit *= 2) {
    Round pack;
    std::int64_t begin = program.scratch;
    for (int d = bit; d < p; ++d) {
      if ((d & bit) == 0) continue;
      const Span source = at[static_cast<std::size_t>(d)];
      pack.push_back(copy(scratch({program.scratch, source.count}), source));
      program.scratch += source.count;
    }
    const Span packed = scratch({begin, program.scratch - begin});
    add(program, std::move(pack));

    begin = program.scratch;
    for (int d = bit; d < p; ++d) {
      if ((d & bit) == 0) continue;
      const int sender = wrap(rank - (d & (2 * bit - 1)), p);
      const std::int64_t coming = count(sender, wrap(sender + d, p));
      at[static_cast<std::size_t>(d)] = scratch({program.scratch, coming});
      program.scratch += coming;
    }
    const Span arriving = scratch({begin, program.scratch - begin});
    add(program, {send(wrap(rank + bit, p), packed), recv(wrap(rank - bit, p), arriving)});
  }
  Round unpack;
  std::int64_t begin = 0;
  for (int sender = 0; sender < p; ++sender) {
    const Span& source = at[static_cast<std::size_t>(wrap(rank - sender, p))];
    unpack.push_back(copy(out({begin, source.count}), source));
    begin += source.count;
  }
  add(program, std::move(unpack));
  return program;
}

inline constexpr Entry bruck_all_to_all_entry{
    .what = Collective::all_to_all,
    .name = "bruck",
    .make = bruck_all_to_all,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      std::int64_t blocks = 0;
      for (int distance = 1; distance < t.p; ++distance) {
        blocks += std::popcount(static_cast<unsigned>(distance));
      }
      return {{t.up, t.block * blocks, t.block * blocks, 0}, t.equal};
    },
};

}  // namespace peal::comm
