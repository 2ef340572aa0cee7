// SPDX-License-Identifier: Apache-2.0
// Orphans: processes that ranks have started and left behind. They become children of this process
// (PR_SET_CHILD_SUBREAPER) instead of the system's first, so none of them outlives the job. Thread
// safety: one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <vector>

namespace peal::launch {

class Orphans {
 public:
  // Children that this process has already are not the job's.
  Orphans();
  // Ends and reaps all others: SIGTERM, and SIGKILL to those that are there after `grace`, or once
  // hurry() is true, which is asked meanwhile. How many there were; those that end with the ranks,
  // within a quarter of a second, as the last program of a pipe does, were not left.
  int end(std::chrono::nanoseconds grace, const std::function<bool()>& hurry) const;

 private:
  std::vector<pid_t> there() const;
  std::vector<pid_t> before_;
};

}  // namespace peal::launch
