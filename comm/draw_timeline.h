// SPDX-License-Identifier: Apache-2.0
#pragma once

// What ranks did and when: simulated or measured, drawn by the same code.
//
// Thread safety: plain values and pure functions.

#include <peal/comm/schedule.h>

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
};

struct Timeline {
  int world = 0;
  std::vector<Activity> activities;  // of a rank and kind, in order of their begin
};

// A complete SVG file. A lane for each rank, time from left to right: what it sends above, what it
// receives below, arithmetic between; pale where it waits.
std::string svg(const Timeline& timeline, std::string_view title);

// JSON in the format of chrome://tracing and ui.perfetto.dev: a process for each rank, whose
// threads are what it sends, receives and computes; an arrow for each message.
std::string chrome_trace(const Timeline& timeline);

}  // namespace peal::comm
