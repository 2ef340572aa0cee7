// SPDX-License-Identifier: Apache-2.0
// What the page shows of failures, as JSON: ranks that are processes of this machine run
// collectives until one of them is killed, stops, or makes another call than the others, and each
// writes down when it called what, when it learned that something is wrong, and in which words. All
// of it has happened while the page was made.
//
// Thread safety: it forks, so the process has one thread. REQUIRES: shared memory.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace peal::launch {

struct FailureViewOptions {
  int ranks = 4;
  std::int64_t deadline_ms = 1000;  // of the group
  std::string how = "all";          // or one of them
};

// By failure: {"name", "says", "ranks"}, of each rank what happened, [nanoseconds since the
// failure, "call", "done", "fails", "learns" or "ends", text]. Error for a failure that is none,
// fewer than 2 or more than 8 ranks, a deadline that is none or longer than a minute.
nlohmann::json failure_json(const FailureViewOptions& options);

}  // namespace peal::launch
