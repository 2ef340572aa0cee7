// SPDX-License-Identifier: Apache-2.0
#pragma once

// Programs made of programs: one after the other, inside a part of the world or of a buffer, and
// many small ones in a pipeline. All are pure; the executor never rewrites a plan.
//
// Keeping step. An algorithm keeps step if every message stands in the round of the same number at
// both ends, idle rounds being empty. Programs that keep step can be laid over each other, each as
// late as one likes, if they share no memory: round t of the whole meets round t of the whole, so
// nobody waits in a circle, and the messages of a direction stay in order. Afterwards the idle
// rounds can go.
//
// Source of the idea: pipelining as in P. Sanders, J. Speck, J. L. Traff, Two-tree algorithms for
// full bandwidth broadcast, reduction and scan, Parallel Computing 35 (2009).

#include <peal/comm/schedule/schedule.h>

#include <algorithm>
#include <span>
#include <utility>

namespace peal::comm {

// Appends what comes after. Both use the same scratch, and the same room.
inline void append(Program& program, Program next) {
  program.scratch = std::max(program.scratch, next.scratch);
  program.room = std::max(program.room, next.room);
  for (Round& round : next.rounds) program.rounds.push_back(std::move(round));
}

// The program of a part of the world on a part of the memory: its rank i is ranks[i], its `in` and
// `out` begin where `in` and `out` do, its scratch behind `scratch_before` elements; rooms are as
// they are. A copy that would fall onto itself is left out.
// REQUIRES one that is right in place, if the two spans share memory in the way of that collective.
inline Program embed(Program part, std::span<const int> ranks, Span in, Span out,
                     std::int64_t scratch_before = 0) {
  const auto rank = [&](int i) { return ranks[static_cast<std::size_t>(i)]; };
  const Span bases[] = {in, out, scratch({scratch_before, 0}), room({0, 0})};  // by Buffer
  const auto place = [&](Span& span) {
    const Span& base = bases[static_cast<std::size_t>(span.buffer)];
    span.buffer = base.buffer;
    span.at += base.at;
    if (span.owner != self) span.owner = rank(span.owner);
  };
  for (Round& round : part.rounds) {
    for (Step& step : round) {
      if (step.peer != nobody) step.peer = rank(step.peer);
      for (Span* span : {&step.dst, &step.src}) {
        if (span->count > 0) place(*span);
      }
    }
  }
  Program placed{part.scratch + scratch_before, {}, part.room};
  for (Round& round : part.rounds) {
    const bool idle = round.empty();
    std::erase_if(round, [](const Step& s) { return s.kind == Kind::copy && s.dst == s.src; });
    if (idle || !round.empty()) placed.rounds.push_back(std::move(round));
  }
  return placed;
}

// Cuts all_reduce, reduce or broadcast into k chunks, of which each runs one round behind the one
// before: a pipeline. Costs k - 1 rounds more than `algorithm` does; but where most ranks idle in
// most of its rounds, they now work on other chunks. REQUIRES an algorithm that keeps step.
inline Program segment(Algorithm algorithm, const Problem& problem, int k) {
  const Blocks chunk = Blocks::balanced(problem.counts[0], k, problem.align);
  std::vector<int> everyone;
  for (int r = 0; r < problem.world; ++r) everyone.push_back(r);

  Program whole;
  for (int c = 0; c < k; ++c) {
    Problem small = problem;
    const std::int64_t count[] = {chunk[c].count};
    small.counts = count;
    const Block at{chunk[c].at, 0};
    const Program part = embed(algorithm(small), everyone, in(at), out(at), whole.scratch);
    whole.scratch = part.scratch;
    whole.rounds.resize(
        std::max(whole.rounds.size(), part.rounds.size() + static_cast<std::size_t>(c)));
    for (std::size_t t = 0; t < part.rounds.size(); ++t) {
      Round& round = whole.rounds[t + static_cast<std::size_t>(c)];
      round.insert(round.end(), part.rounds[t].begin(), part.rounds[t].end());
    }
  }
  Program trimmed{whole.scratch, {}};
  for (Round& round : whole.rounds) add(trimmed, std::move(round));
  return trimmed;
}

// The chunks of a pipeline: of problem.chunk elements or, where that is 0, of a size at which a
// chunk takes longer to send than to announce on most networks.
inline int chunks(const Problem& problem) {
  constexpr std::int64_t usual = 16384;
  const std::int64_t size = problem.chunk > 0 ? problem.chunk : usual;
  return static_cast<int>(std::max<std::int64_t>(1, (problem.counts[0] + size - 1) / size));
}

}  // namespace peal::comm
