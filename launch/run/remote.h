// SPDX-License-Identifier: Apache-2.0
// A job on several hosts: a peal-run on each, started by a remote shell (mpirun's plm_rsh_agent),
// is told over its standard input what to start, so that neither the environment nor the secret
// stands on a command line, and runs the ranks there (part.h). Thread safety: the main thread of a
// process that has no other.
#pragma once

#include <peal/launch/run/options.h>
#include <peal/launch/run/rank_environment.h>
#include <peal/launch/run/signals.h>
#include <peal/launch/run/supervisor.h>

#include <vector>

namespace peal::launch {

// What starts a peal-run as an agent.
constexpr const char* agent_option = "--as-agent";

// Until all have ended; what is lost is by share.
Outcome run_on_hosts(const Options& options, const Attempt& attempt, const std::vector<Host>& hosts,
                     const std::vector<Share>& shares, Signals& signals);

// Of an agent. The exit status.
int run_as_agent();

}  // namespace peal::launch
