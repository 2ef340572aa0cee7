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
inline std::vector<std::string> errors_of(int world, const std::function<void(launch::Job&)>& f) {
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  comm::run_ranks(world, [&](const comm::ProcessGroup& group) {
    launch::Job job(group);
    errors[static_cast<std::size_t>(job.rank())] = error_of([&] { f(job); });
  });
  return errors;
}

}  // namespace peal::testing
