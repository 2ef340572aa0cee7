// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/processes.h>
#include <peal/launch/rank.h>
#include <peal/launch/spawn.h>
#include <peal/launch/spawned_rank.h>

#include <cstdlib>

namespace peal::launch {

void spawn(int ranks, const std::function<void(Job&)>& f, StartMethod start_method) {
  PEAL_CHECK(f != nullptr, "[launch] spawn: expected a function, got none");
  if (start_method == StartMethod::fork) {
    start_processes(ranks, f).join();
  } else {
    comm::run_ranks(ranks, [&](const comm::ProcessGroup& group) { run_spawned(group, f); });
  }
}

void notebook_launcher(int ranks, const std::function<void(Job&)>& f, StartMethod start_method) {
  PEAL_CHECK(spawned_as() < 0, "[launch] notebook_launcher: this is rank ", spawned_as(),
             " of a launch already; call it outside, or spawn() for ranks within a rank");
  const Rank here = discover([](const char* name) { return std::getenv(name); });
  PEAL_CHECK(here.world == 1, "[launch] notebook_launcher: ", here.launcher, " started ",
             here.world, " processes, and each would start ", ranks,
             " ranks; start the program alone, or use run_main()");
  spawn(ranks, f, start_method);
}

}  // namespace peal::launch
