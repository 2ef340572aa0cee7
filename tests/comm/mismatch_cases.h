// SPDX-License-Identifier: Apache-2.0
// Ranks whose calls differ, in each way in which they can: the last of three against the others.
// Every test of a transport goes through the same table.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/comm/group/process_group.h>

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm::testing {

struct Mismatch {
  std::string_view what;      // differs
  std::string_view calls[2];  // of the others and of the last rank: parts of the message
  // Makes the calls of a rank, and waits; it ends with an error.
  void (*run)(const ProcessGroup& group, bool last, Device device);
};
std::span<const Mismatch> mismatches();

// The deadline is far away: what ends the ranks is that their calls differ.
inline const ProcessGroup::Options before_the_deadline{.deadline = std::chrono::seconds(100)};

// What a rank has thrown, and after how many seconds.
struct Told {
  std::string error;
  double seconds;
};
Told run_mismatch(const Mismatch& mismatch, const ProcessGroup& group, Device device);
void print_mismatch(std::string_view transport, const Mismatch& mismatch, const Told& told);

// That error of a rank names ranks and both calls.
void check_mismatch(const Mismatch& mismatch, const std::string& error);
// All mismatches at once. `three_ranks` runs f on each rank of a world of its own, on that rank's
// device, and returns what each has thrown. Prints the first rank's messages.
using ThreeRanks =
    std::function<std::vector<std::string>(const std::function<void(const ProcessGroup&)>& f)>;
void check_mismatches(std::string_view transport, const ThreeRanks& three_ranks);

}  // namespace peal::comm::testing
