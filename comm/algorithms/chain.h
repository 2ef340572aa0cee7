// SPDX-License-Identifier: Apache-2.0
#pragma once

// The chain: broadcast and reduce of large messages, where every link carries every element once.
//
// Vocabulary. A rank's place is its distance from the root round the circle; the root has place 0.
// The message is cut into k chunks.
//
// Broadcast. Place v receives a chunk from v - 1 in one round and passes it on to v + 1 in the
// next, while the following chunk arrives. Invariant: after round t, place v has the chunks
// 0 .. t-v+1. Reduce: the same backwards; place v adds its own numbers to the partial sum of
// v+1 .. p-1 that comes, and passes it on towards the root.
//
// Cost, n elements: p-2+k rounds of n/k elements, so for many chunks hardly more than n; with one
// chunk, p-1 whole messages one after the other.
//
// Source: the pipeline is as old as the field; e.g. J. Watts, R. van de Geijn, A pipelined
// broadcast for multidimensional meshes, Parallel Processing Letters 5 (1995).

#include <peal/comm/algorithms/compose.h>
#include <peal/comm/algorithms/entry.h>

namespace peal::comm {

// One chunk. Both keep step.
inline Program chain_broadcast_chunk(const Problem& problem) {
  const int p = problem.world;
  const int place = wrap(problem.rank - problem.root, p);
  const Block all{0, problem.counts[0]};
  const Span message = place == 0 ? in(all) : out(all);
  Program program{0, std::vector<Round>(static_cast<std::size_t>(p))};
  const auto round = [&](int t) -> Round& { return program.rounds[static_cast<std::size_t>(t)]; };
  if (place > 0) round(place - 1).push_back(recv(wrap(problem.rank - 1, p), message));
  if (place + 1 < p) round(place).push_back(send(wrap(problem.rank + 1, p), message));
  if (place == 0) round(p - 1).push_back(copy(out(all), message));
  return program;
}

inline Program chain_reduce_chunk(const Problem& problem) {
  const int p = problem.world;
  const int place = wrap(problem.rank - problem.root, p);
  const Block all{0, problem.counts[0]};
  const bool last = place + 1 == p;
  const Span sum = place == 0 ? out(all) : last ? in(all) : scratch(all);
  Program program{place == 0 || last ? 0 : all.count,
                  std::vector<Round>(static_cast<std::size_t>(p))};
  const auto round = [&](int t) -> Round& { return program.rounds[static_cast<std::size_t>(t)]; };
  if (place == 0 || !last) round(0).push_back(copy(sum, in(all)));
  if (!last) round(p - 1 - place).push_back(recv_reduce(wrap(problem.rank + 1, p), sum));
  if (place > 0) round(p - place).push_back(send(wrap(problem.rank - 1, p), sum));
  return program;
}

inline Program chain_broadcast(const Problem& problem) {
  return segment(chain_broadcast_chunk, problem, chunks(problem));
}

inline constexpr Entry chain_broadcast_entry{
    .what = Collective::broadcast,
    .name = "chain",
    .make = chain_broadcast,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      if (t.p == 1) return {{}, true};
      return {{t.k + (t.p > 2), t.n, t.n, 0}, t.n > 0};
    },
    .pipelined = true,
};

inline Program chain_reduce(const Problem& problem) {
  return segment(chain_reduce_chunk, problem, chunks(problem));
}

inline constexpr Entry chain_reduce_entry{
    .what = Collective::reduce,
    .name = "chain",
    .make = chain_reduce,
    .costs = [](const Problem& problem) -> ClosedForm {
      const Terms t(problem);
      if (t.p == 1) return {{}, true};
      return {{t.k + (t.p > 2), t.n, t.n, t.n}, t.n > 0};
    },
    .pipelined = true,
};

}  // namespace peal::comm
