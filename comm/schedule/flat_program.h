// SPDX-License-Identifier: Apache-2.0
#pragma once

// Flat program: bytecode: one-sided programs as plain words in one piece of memory, for an
// interpreter that has no heap: a kernel, which takes them as its argument. What all workers of a
// rank run, whatever their number.
//
// Strips. A rank has several workers (a device's blocks of threads), and worker w of one works with
// worker w of the others alone, with signals and rooms of their own. So a collective is cut into as
// many of the same kind. Each *part* of it (counts[i] of its Problem) is cut into equal *strips*,
// one a worker; the last ones may be shorter, or empty. The program is that of a collective whose
// parts are all one strip, of the longest part; and where a worker's strip ends before that, it
// moves less. That is right because steps move each element by itself, and to where the same
// element belongs, so all steps of an element can be left out: flatten() demands that every step is
// of one part's elements. Tests put the workers' steps together again to programs of the whole
// problem, by the functions below, which kernels use too, and verify() proves those.
//
// Meetings. Signals and awaits of a round are one step. Between two signals to a rank stands an
// await of it: so who sees a later signal than the one it awaits knows that the sender had heard of
// it, and that both are in one operation.
//
// Loops. Rounds that come again with the next elements, and in a room in two places alternately
// (staged_slices.h), stand once.
//
// Thread safety: plain values. flatten() throws std::invalid_argument, and only that.

#include <peal/comm/schedule/plan.h>
#include <peal/comm/schedule/schedule.h>

#include <algorithm>
#include <cstdint>

namespace peal::comm {

struct FlatSpan {
  std::int64_t at = 0;     // of in and out: where that rank has the part; of a room: where
  std::int32_t odd = 0;    // of a room: instead, in odd rounds of a loop
  std::uint8_t owner = 0;  // a rank, never `self`
  Buffer buffer = Buffer::in;
};

struct FlatStep {
  enum class Kind : std::uint8_t {
    meet,     // signals, then awaits
    copy,     // one target, one source
    combine,  // every target becomes sources[0] (+) sources[1] (+) ..
    choose,   // where not all buffers are within reach, goes on at `next`
    again,    // goes on at `next`, `count` times in all
    stop
  };
  Kind kind = Kind::stop;
  bool fresh = false;                     // a round of its own: it may read what others wrote
  std::uint8_t targets = 0, sources = 0;  // how many spans
  std::uint16_t first = 0, part = 0;      // of its spans, targets first; what its elements are of
  std::uint16_t signals = 0, awaits = 0;  // bits by rank
  std::uint16_t next = 0;
  std::int64_t at = 0, count = 0;  // in the strip
};

struct FlatProgram {
  static constexpr int most_ranks = 16, most_steps = 56, most_spans = 96;
  static constexpr int most_parts = 2 * most_ranks;

  int steps = 0, spans = 0, parts = 0;
  std::int64_t align = 1;   // strips begin at multiples of it
  std::int64_t stride = 0;  // a round of a loop moves what lies in strips by so much
  std::int64_t room = 0;    // elements, of a worker
  FlatStep step[most_steps] = {};
  FlatSpan span[most_spans] = {};
  std::int64_t count[most_parts] = {};  // elements of the part

  bool is_empty() const { return step[0].kind == FlatStep::Kind::stop; }
  bool combines() const {
    return std::any_of(step, step + steps,
                       [](const FlatStep& s) { return s.kind == FlatStep::Kind::combine; });
  }
};

// Elements of a strip of a part of `count` elements, but for the last ones.
constexpr std::int64_t strip_of(std::int64_t count, int workers, std::int64_t align) {
  const std::int64_t each = (count + workers - 1) / workers;
  return (each + align - 1) / align * align;
}

// What a worker moves in a step, in the given round of a loop, else 0: elements of the part.
constexpr Block elements_of(const FlatProgram& program, const FlatStep& step, std::int64_t round,
                            int worker, int workers) {
  const std::int64_t part = program.count[step.part];
  const std::int64_t strip = strip_of(part, workers, program.align);
  const std::int64_t begin = std::min(worker * strip, part);
  const std::int64_t at = step.at + round * program.stride;
  const std::int64_t left = std::min(begin + strip, part) - begin - at;
  return {begin + at, std::max<std::int64_t>(std::min(left, step.count), 0)};
}

// Where they lie, in the worker's room or the rank's buffer.
constexpr std::int64_t place_of(const FlatSpan& span, const Block& elements, std::int64_t round) {
  if (span.buffer == Buffer::room) return round % 2 == 0 ? span.at : span.odd;
  return span.at + elements.at;
}

// Where an interpreter is.
struct FlatCursor {
  int step = 0;
  std::int64_t round = 0;  // of the loop
};
// Past a step of the loops, or any that has been done.
constexpr void advance(const FlatProgram& program, FlatCursor& now) {
  const FlatStep& step = program.step[now.step];
  if (step.kind == FlatStep::Kind::again && ++now.round < step.count) {
    now.step = step.next;
    return;
  }
  if (step.kind == FlatStep::Kind::again) now.round = 0;
  ++now.step;
}
constexpr void choose(const FlatProgram& program, FlatCursor& now, bool all_within_reach) {
  now.step = all_within_reach ? now.step + 1 : program.step[now.step].next;
}

// A plan of `problem` whose counts are all `strip` instead. REQUIRES: a strip is no shorter than
// strip_of() any part; beyond that it may be as long as one likes.
struct StripPlan {
  const Plan* plan = nullptr;
  std::int64_t strip = 0;
};

// `otherwise` begins with the same round as the first, after which goes on with it who finds that
// not all buffers are within reach; without a plan, nobody asks. Only copies and combinations can
// be flattened.
FlatProgram flatten(const Problem& problem, std::int64_t align, const StripPlan& plan,
                    const StripPlan& otherwise = {});

}  // namespace peal::comm
