// SPDX-License-Identifier: Apache-2.0
// Runs of ranks that are to fail, and ranks that wait for what another does.
#pragma once

#include <peal/comm/start/threads.h>
#include <peal/tests/errors.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
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

// For two ranks: f on rank 0 alone, once both have come. Rank 1 takes no further part, and stays
// until f has ended or the group is poisoned.
inline std::function<void(const comm::ProcessGroup&)> alone_on_rank_0(
    const std::function<void(const comm::ProcessGroup&)>& f) {
  return [f, over = std::make_shared<std::atomic<bool>>(false)](const comm::ProcessGroup& group) {
    group.barrier().wait();
    if (group.rank() != 0) return wait_until([&] { return *over || group.poisoned(); });
    const auto finally = std::shared_ptr<void>(nullptr, [&](void*) { *over = true; });
    f(group);
  };
}

}  // namespace peal::testing
