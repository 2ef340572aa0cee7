// SPDX-License-Identifier: Apache-2.0
#pragma once

// What ranks did and when: simulated or measured, drawn by the same code.
//
// Thread safety: plain values and pure functions.

#include <peal/comm/schedule/schedule.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

// A step of a rank, from the moment its round began to its own end. For a message, `moves` is when
// its bytes began to move: before that the rank waited for its partner, or for the wire.
struct Activity {
  int rank = 0;
  Kind kind = Kind::copy;
  int peer = nobody;
  std::int64_t round = 0;  // of the rank
  std::int64_t bytes = 0;
  double begin = 0, moves = 0, end = 0;  // seconds on a clock that all ranks share
  std::int64_t message = -1;             // a number that both its sides have; -1: none
};

// What the steps belong to: a collective of a rank, from its start to its end.
struct OperationTime {
  int rank = 0;
  std::string text;
  double begin = 0, end = 0;
};

// What else a rank did: an op, where the row is empty, or a phase of what has that row. Those of a
// row lie within each other or apart.
struct SpanTime {
  int rank = 0;
  std::string text, row;
  double begin = 0, end = 0;
};

struct Timeline {
  int world = 0;
  std::vector<Activity> activities;
  std::vector<OperationTime> operations{};  // may overlap; for traces alone
  std::vector<SpanTime> spans{};            // for traces alone
};

// A timeline among others of the same ranks, such as "model" and "measured".
struct NamedTimeline {
  std::string name;
  const Timeline* timeline;
};

// A complete SVG file. A lane for each rank, time from left to right: what it sends above, what it
// receives below, arithmetic between; pale where it waits. Several timelines share one axis, each
// with lanes of its own, one below the other.
std::string svg(const std::vector<NamedTimeline>& timelines, std::string_view title);
inline std::string svg(const Timeline& timeline, std::string_view title) {
  return svg({{"", &timeline}}, title);
}

// JSON in the format of chrome://tracing and ui.perfetto.dev: a process for each rank, whose
// threads are what it sends, receives and computes, and its operations above them; an arrow for
// each message; and the spans. Of several timelines each has processes of its own.
std::string chrome_trace(const std::vector<NamedTimeline>& timelines);
inline std::string chrome_trace(const Timeline& timeline) {
  return chrome_trace({{"", &timeline}});
}

}  // namespace peal::comm
