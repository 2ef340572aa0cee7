// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/rank.h>
#include <peal/launch/spawn.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace peal::launch {
namespace {

thread_local int spawned_as = -1;  // this thread's rank

// With the rank, unless the message begins with who it was.
std::string named(int rank, std::string_view what) {
  return what.starts_with("[") ? std::string(what) : concat("[rank ", rank, "] ", what);
}

void run_rank(const comm::ProcessGroup& group, const std::function<void(Job&)>& f) {
  const int before = std::exchange(spawned_as, group.rank());
  const std::shared_ptr<void> reset(nullptr, [before](void*) { spawned_as = before; });
  Job job(group);
  try {
    f(job);
  } catch (const std::exception& error) {
    const std::string message = named(job.rank(), error.what());
    group.poison(message);  // before the job's end would say less
    std::throw_with_nested(Error(message));
  }
}

}  // namespace

void spawn(int ranks, const std::function<void(Job&)>& f) {
  PEAL_CHECK(f != nullptr, "[launch] spawn: expected a function, got none");
  comm::run_ranks(ranks, [&](const comm::ProcessGroup& group) { run_rank(group, f); });
}

void notebook_launcher(int ranks, const std::function<void(Job&)>& f) {
  PEAL_CHECK(spawned_as < 0, "[launch] notebook_launcher: this is rank ", spawned_as,
             " of a launch already; call it outside, or spawn() for ranks within a rank");
  const Rank here = discover([](const char* name) { return std::getenv(name); });
  PEAL_CHECK(here.world == 1, "[launch] notebook_launcher: ", here.launcher, " started ",
             here.world, " processes, and each would start ", ranks,
             " ranks; start the program alone, or use run_main()");
  spawn(ranks, f);
}

}  // namespace peal::launch
