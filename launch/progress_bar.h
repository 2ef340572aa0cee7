// SPDX-License-Identifier: Apache-2.0
// ProgressBar: a live line on stderr for people at a terminal; elsewhere a plain line every tenth
// of the way, so that log files stay readable. Silent unless `shown` (rank 0), and where
// PEAL_PROGRESS is none. Thread safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace peal::launch {

// Where a bar is drawn.
struct ProgressOutput {
  std::ostream* stream = nullptr;  // null: stderr
  // One line that changes. Unset: where stderr is a terminal, and it is stderr.
  std::optional<bool> live = {};
};

class ProgressBar {
 public:
  // `total`: the number of steps at which it is full. Not `shown`: it writes nothing, as on ranks
  // but one.
  ProgressBar(std::string title, std::int64_t total, bool shown, const ProgressOutput& to = {});
  // `done` of total; `note` stands at the end of the line. Redraws at most ten times a second.
  void update(std::int64_t done, const std::string& note);
  // Leaves the full bar on the screen.
  void finish(const std::string& note) { leave(total_, note); }
  // Leaves it where it is.
  void leave(std::int64_t done, const std::string& note);

 private:
  void draw(std::int64_t done, const std::string& note, bool last);

  std::string title_;
  std::int64_t total_;
  std::ostream* stream_;
  bool shown_, live_;
  std::chrono::steady_clock::time_point start_, drawn_{};
  std::int64_t tenth_ = 0;
};

}  // namespace peal::launch
