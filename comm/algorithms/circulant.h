// SPDX-License-Identifier: Apache-2.0
#pragma once

// Circulant graphs: all_reduce, reduce_scatter and all_gather with the bytes of the ring in the
// rounds of a tree, for any number of ranks. The default for large messages.
//
// Vocabulary. The buffer is cut into p blocks, block[i] belongs to rank i, and indices go round.
// Seen from rank r, R[i] is block r + i: the own block is R[0]. The skips are p halved and rounded
// up until 1 is reached: p = 7 gives the windows 7 > 4 > 2 > 1.
//
// Reduce phase. Going from window w to the next, s = ceil(w/2), each rank sends its partial sums
// R[s] .. R[w-1] to rank r + s, which knows them as R[0] .. R[w-s-1] and adds them to its own.
// Invariant: the partials of a block that lie inside some rank's window hold, together, every
// contribution once. At window 1 only the owner's is left. Sent and received blocks never meet,
// since w - s <= s.
//
// Gather phase. The same skips backwards, with finished blocks: R[0] .. R[w-s-1] go to rank r - s.
//
// Cost a rank, n elements: each phase ceil(log2 p) rounds and n(p-1)/p elements sent; the reduce
// phase adds n(p-1)/p. A run of blocks that passes the end of the buffer travels as two messages of
// the same round.
//
// Needs a commutative reduction. Each block is summed in one place and then copied: all ranks get
// the same bits.
//
// Source: J. L. Traff, Optimal, non-pipelined reduce-scatter and allreduce algorithms, arXiv
// 2410.14234 (2024).

#include <peal/comm/algorithms/entry.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace peal::comm {

inline std::vector<int> circulant_windows(int world) {
  std::vector<int> windows{world};
  while (windows.back() > 1) windows.push_back((windows.back() + 1) / 2);
  return windows;
}

// The gather phase in `out`, where the own block stands.
inline void circulant_gather_phase(Program& program, int rank, const Blocks& block) {
  const int p = block.size();
  const std::vector<int> windows = circulant_windows(p);
  for (std::size_t k = windows.size() - 1; k > 0; --k) {
    const int w = windows[k - 1], s = windows[k];
    const int ahead = wrap(rank + s, p), back = wrap(rank - s, p);
    Round round;
    for (const Block& b : block.run(rank, w - s)) round.push_back(send(back, out(b)));
    for (const Block& b : block.run(rank + s, w - s)) round.push_back(recv(ahead, out(b)));
    add(program, std::move(round));
  }
}

inline Program circulant_all_reduce(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const Blocks block = Blocks::balanced(problem.counts[0], p, problem.align);
  const std::vector<int> windows = circulant_windows(p);
  Program program;
  add(program, {copy(out(block.all()), in(block.all()))});
  for (std::size_t k = 0; k + 1 < windows.size(); ++k) {
    const int w = windows[k], s = windows[k + 1];
    const int ahead = wrap(rank + s, p), back = wrap(rank - s, p);
    Round round;
    for (const Block& b : block.run(rank + s, w - s)) round.push_back(send(ahead, out(b)));
    for (const Block& b : block.run(rank, w - s)) round.push_back(recv_reduce(back, out(b)));
    add(program, std::move(round));
  }
  circulant_gather_phase(program, rank, block);
  return program;
}

inline constexpr Entry circulant_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "circulant",
    .make = circulant_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.twice(2 * t.up), t.equal};
    },
};

inline Program circulant_all_gather(const Problem& problem) {
  const Blocks block(problem.counts);
  const Block own = block[problem.rank];
  Program program;
  add(program, {copy(out(own), in({0, own.count}))});
  circulant_gather_phase(program, problem.rank, block);
  return program;
}

inline constexpr Entry circulant_all_gather_entry{
    .what = Collective::all_gather,
    .name = "circulant",
    .make = circulant_all_gather,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.once(t.up, false), t.equal};
    },
};

// `in` must stay whole, so from the second round on the partials live in scratch, in the order R:
// there no run has to be cut in two. The first round sends from `in` and cuts where it must.
inline Program circulant_reduce_scatter(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const Blocks block(problem.counts);
  std::vector<std::int64_t> turned(problem.counts.begin(), problem.counts.end());
  std::ranges::rotate(turned, turned.begin() + rank);
  const Blocks partials(turned);
  const std::vector<int> windows = circulant_windows(p);

  Program program;
  if (p == 1) {
    add(program, {copy(out(block.all()), in(block.all()))});
    return program;
  }
  const int kept = windows[1];
  program.scratch = partials.range(0, kept).count;
  Round first;
  std::int64_t at = 0;
  for (const Block& b : block.run(rank, kept)) {
    first.push_back(copy(scratch({at, b.count}), in(b)));
    at += b.count;
  }
  add(program, std::move(first));
  for (std::size_t k = 0; k + 1 < windows.size(); ++k) {
    const int w = windows[k], s = windows[k + 1];
    const int ahead = wrap(rank + s, p), back = wrap(rank - s, p);
    Round round;
    if (k == 0) {
      at = 0;
      for (const Block& b : block.run(rank + s, w - s)) round.push_back(send(ahead, in(b)));
      for (const Block& b : block.run(rank, w - s)) {
        round.push_back(recv_reduce(back, scratch({at, b.count})));
        at += b.count;
      }
    } else {
      round = {send(ahead, scratch(partials.range(s, w - s))),
               recv_reduce(back, scratch(partials.range(0, w - s)))};
    }
    add(program, std::move(round));
  }
  const Block own{0, block[rank].count};
  add(program, {copy(out(own), scratch(own))});
  return program;
}

inline constexpr Entry circulant_reduce_scatter_entry{
    .what = Collective::reduce_scatter,
    .name = "circulant",
    .make = circulant_reduce_scatter,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      return {t.once(t.up, true), t.equal};
    },
};

}  // namespace peal::comm
