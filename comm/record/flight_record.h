// SPDX-License-Identifier: Apache-2.0
// Flight record: what a rank's flight recorder had at a moment, for files and people. A rank leaves
// two files in a folder, `RUN.rank-R.flight.json` and the same as a table, `RUN.rank-R.flight.txt`,
// where RUN is its world's, in hex; merged() lays those of all ranks side by side, and marks the
// first operation in which they differ.
//
// Ranks that were asked by a signal, each at its own moment, went on: what one had not done yet
// when it was asked says nothing, unless another had done it before that. Thread safety: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

struct FlightRecord {
  struct Operation {
    std::uint64_t number = 0;  // of the rank's, from 0
    std::uint64_t group = 0;   // 0: the world
    std::uint64_t sequence = 0;
    std::uint64_t signature =
        0;                 // of this call and all before it in the group: equal where ranks agree
    bool message = false;  // which has no place among the calls of its group
    std::string state{};   // "under way", "done", "failed"
    std::int64_t begin = 0, end = 0;  // nanoseconds of the rank's clock; 0: not known
    std::string text{};               // "all_reduce #17 (sum of 256 f32; bucket 3: fc1.weight)"

    bool done() const { return state == "done"; }
  };
  // Of the world, equal on its ranks: larger for one that began later, to a millisecond.
  std::uint64_t run = 0;
  int rank = 0, world = 0;
  std::string host{};
  std::string why{};                    // it was written
  bool over = false;                    // the world had failed: nothing follows
  std::int64_t now = 0;                 // when, by the clock of its operations,
  std::int64_t written = 0;             // and in nanoseconds since 1970
  std::uint64_t begun = 0;              // operations so far, of which the last are kept
  std::vector<Operation> operations{};  // the oldest first
};

std::string json(const FlightRecord& record);
// The last `most` operations as a table, those before them that are not done as well.
std::string text(const FlightRecord& record, std::size_t most = 2048);

// Both files, whole or not at all, whoever else writes them. Makes the folder where it is missing.
// Error where they cannot be written.
void write_flight(const std::string& folder, const FlightRecord& record);

// Where the calls of a group's ranks begin to differ: in what they are, in that ranks lack one, or
// in how far it has come.
struct FlightDifference {
  std::uint64_t group = 0, sequence = 0;
  std::string text{};  // "rank 1 is in broadcast #16 (...), ranks 0,2 in all_reduce #16 (...)"
};
struct MergedFlight {
  std::vector<FlightDifference> differences{};  // the first of each group
  std::string table{};
};
// `around`: so many calls of each group before the difference, and behind it.
MergedFlight merged(const std::vector<FlightRecord>& records, int around = 5);

}  // namespace peal::comm
