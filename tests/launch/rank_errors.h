// SPDX-License-Identifier: Apache-2.0
// What ranks as threads say that goes wrong, of each.
#pragma once

#include <peal/comm/start/threads.h>
#include <peal/launch/job.h>
#include <peal/tests/errors.h>

#include <functional>
#include <string>
#include <vector>

namespace peal::testing {

// The errors of all ranks, each of a rank's own f.
// Empty of one that has not come to its end.
inline std::vector<std::string> errors_of(int world, const std::function<void(launch::Job&)>& f) {
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  const auto each = [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    errors[static_cast<std::size_t>(job.rank())] = error_of([&] { f(job); });
  };
  error_of([&] { comm::run_ranks(world, each); });  // a poisoned group's last barrier is one, too
  return errors;
}

}  // namespace peal::testing
