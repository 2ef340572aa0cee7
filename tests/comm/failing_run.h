// SPDX-License-Identifier: Apache-2.0
// Runs of ranks that are to fail, and ranks that wait for what another does.
#pragma once

#include <peal/comm/start/threads.h>
#include <peal/tests/errors.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace peal::testing {

// What run_ranks throws, or "nothing".
inline std::string failure(int world, const comm::ProcessGroup::Options& options,
                           const std::function<void(const comm::ProcessGroup&)>& f) {
  return error_of([&] { comm::run_ranks(world, options, f); });
}

// For as long as the test may take.
inline void wait_until(const std::function<bool()>& over) {
  while (!over()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace peal::testing
