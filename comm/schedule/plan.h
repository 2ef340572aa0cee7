// SPDX-License-Identifier: Apache-2.0
// Plan: a rank's program, ready to run: checked once, with what any run of it takes. Runs of one
// collective share it. Thread safety: a value.
#pragma once

#include <peal/comm/schedule/schedule.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::comm {

struct Plan {
  // Rounds that an executor does in one pass over all sources: each target becomes sources[0] (+)
  // sources[1] (+) .. . In the program they build up the sum in scratch, which nothing else reads.
  struct Combination {
    std::vector<Span> targets, sources;
    std::size_t first = 0, rounds = 0;
    std::vector<std::pair<std::size_t, std::size_t>> aliased{};  // those that may share memory
  };

  // std::invalid_argument for steps that make no sense, whatever the buffers.
  explicit Plan(Program made, std::string name = "own");
  // From here on an executor may rely on it that every sum is made in one combination, of all
  // ranks' elements: so a sum in low precision is rounded once, and an average divided once, where
  // it is made. REQUIRES: that the others' programs are so too, for buffers then have another type.
  // std::invalid_argument where this one is not.
  void sum_at_once(int world);
  // The same of rooms that may go with the signals: each rank writes its own alone, before its
  // first signal, and signals to each rank once. REQUIRES: that the others' programs are so too,
  // with rooms of one size. Does nothing where this one is not.
  void send_room_with_signals();
  Program program;
  std::string name;           // of the algorithm
  std::string_view entry{};   // the same, a constant; empty for a caller's own
  std::int64_t arriving = 0;  // the most elements that come to be reduced in any one round
  // How much of each Buffer it touches, up to the last element, and the highest rank it talks to.
  std::int64_t extent[buffer_kinds] = {};
  int highest_peer = nobody;
  std::vector<int> sharers{};  // the ranks that it shares memory with, ascending
  // Of a one-sided one that needs the ranks' own buffers: what goes on instead after the first
  // round, which is the same, where some are out of others' reach. Null: nothing does.
  std::shared_ptr<const Plan> otherwise{};
  std::vector<Combination> combinations{};  // in the order of rounds
  std::int64_t scratch = 0;     // elements that the program takes where combinations take none
  bool all_combined = false;    // nothing is reduced but in combinations
  bool at_once = false;         // each of them of all ranks' elements: sum_at_once()
  bool inline_room = false;     // send_room_with_signals()
  bool reaches_others = false;  // touches their `in` or `out`
  bool one_sided = false;       // touches memory of others
  bool sends = false;           // or has messages
  bool from_any = false;        // has a receive from any source

 private:
  void find_combinations();
};

}  // namespace peal::comm
