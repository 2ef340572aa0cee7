// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a drawing of programs shows, whether as text or as a picture: when each thing happens, in
// rows, and what the blocks are called (draw.h has the notation).
//
// Thread safety: values; they point into the programs.

#include <peal/comm/draw/draw.h>
#include <peal/comm/schedule/schedule.h>

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace peal::comm {

// A message, with both its steps, or what a rank does by itself: then both pointers are the step,
// and from and to are whose memory it is.
struct RowEvent {
  int time;
  int from, to;
  const Step *sends, *receives;
  int by;  // of a message, the sender
  bool message() const { return sends != receives; }
};

// A step that never meets its partner.
struct RowWaiting {
  int time, rank;
  const Step* step;
  bool sends() const { return step->kind == Kind::send || step->kind == Kind::signal; }
  const Span& span() const { return sends() ? step->src : step->dst; }
};

struct Rows {
  std::vector<RowEvent> events;  // in order of time
  std::vector<RowWaiting> waiting;
  int count = 0;
};

// Lets all ranks run, each round beginning in the row after the one before has ended.
Rows rows(std::span<const Program> programs, Stuck stuck);

// The blocks into which the steps cut the buffers.
class BlockNames {
 public:
  explicit BlockNames(std::span<const Program> programs);

  int blocks(Buffer buffer) const;
  int first(const Span& span) const { return index(span.buffer, span.at); }
  // "3", "0-4", "in2", "s2", "out"; "" for nothing.
  std::string operator()(const Span& span) const;
  // "2=in2" or "2+=s0".
  std::string local(const Step& step) const;

 private:
  int index(Buffer buffer, std::int64_t at) const;
  std::set<std::int64_t> cuts_[buffer_kinds];
};

}  // namespace peal::comm
