// SPDX-License-Identifier: Apache-2.0
#pragma once

// Staged slices: the all_reduce of ranks that share memory, for buffers that only their own rank
// reaches. They go through the rooms, a chunk at a time.
//
// Vocabulary. A room has two slots of a chunk, used in turn. Of each chunk, slice i is rank i's
// work.
//
// Begin: all meet; so that a rank knows where the others' buffers lie, and direct_slices.h, which
// begins alike, can be taken instead where all reach them. Then for each chunk: every rank copies
// it into its slot, and all meet. Two ranks: each adds the other's slot to its own `in`. More: rank
// i adds slice i of all slots, in the order of ranks, and leaves the sum in slice i of its own; all
// meet again, and every rank copies the other slices out.
//
// Why two slots are enough: a rank that fills a slot for chunk c + 2 has met all others in chunk
// c + 1, which they came to when they had read all of chunk c.
//
// Cost a rank, n elements in k chunks: 1 + k rounds of signals for two ranks and n additions, 1 +
// 2k and n(p-1)/p for more; two chunks of room. Every element is reduced by the same tree, ((0 + 1)
// + 2) + ..

#include <peal/comm/algorithms/entry.h>
#include <peal/comm/algorithms/meeting.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace peal::comm {

// Elements: of problem.chunk or, where that is 0, such that slots stay in a core's cache.
inline std::int64_t staged_chunk(const Problem& problem) {
  constexpr std::int64_t usual = 16384;
  return problem.chunk > 0 ? problem.chunk : usual;
}

inline Program staged_slices_all_reduce(const Problem& problem) {
  const int p = problem.world, rank = problem.rank;
  const std::int64_t n = problem.counts[0];
  const std::int64_t chunk = std::min(n, staged_chunk(problem));
  Program program;
  if (p == 1) {
    add(program, {copy(out({0, n}), in({0, n}))});
    return program;
  }
  add_meeting(program, rank, p);
  for (std::int64_t at = 0, slot = 0; at < n; at += chunk, slot = chunk - slot) {
    const Block here{at, std::min(chunk, n - at)};
    program.room = std::max(program.room, slot + here.count);
    add(program, {copy(room({slot, here.count}), in(here))});
    add_meeting(program, rank, p);
    const Blocks slices = Blocks::balanced(here.count, p == 2 ? 1 : p, problem.align);
    const Block mine = slices[p == 2 ? 0 : rank];
    std::vector<Span> sources;
    for (int r = 0; r < p; ++r) {
      sources.push_back(r == rank ? in({at + mine.at, mine.count})
                                  : of(r, rank, room({slot + mine.at, mine.count})));
    }
    std::vector<Span> targets{out({at + mine.at, mine.count})};
    if (p > 2) targets.push_back(room({slot + mine.at, mine.count}));
    add_combination(program, targets, sources);
    if (p == 2) continue;
    add_meeting(program, rank, p);
    Round rest;
    for (int r = 0; r < p; ++r) {
      const Block b = slices[r];
      if (r == rank || b.count == 0) continue;
      rest.push_back(copy(out({at + b.at, b.count}), of(r, rank, room({slot + b.at, b.count}))));
    }
    add(program, std::move(rest));
  }
  return program;
}

inline constexpr Entry staged_slices_all_reduce_entry{
    .what = Collective::all_reduce,
    .name = "staged_slices",
    .make = staged_slices_all_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      if (t.p == 1 || t.n == 0) return {{t.p == 1 ? 0 : 1, 0, 0, 0}, true};
      const std::int64_t chunk = std::min(t.n, staged_chunk(problem));
      const std::int64_t chunks = (t.n + chunk - 1) / chunk;
      if (t.p == 2) return {{1 + chunks, 0, 0, t.n}, true};
      const std::int64_t slice = Blocks::balanced(chunk, t.p, problem.align).largest();
      const std::int64_t last = t.n - (chunks - 1) * chunk;
      const std::int64_t rest = Blocks::balanced(last, t.p, problem.align).largest();
      return {{1 + 2 * chunks, 0, 0, ((chunks - 1) * slice + rest) * t.others}, true};
    },
    .pipelined = true,
};

}  // namespace peal::comm
