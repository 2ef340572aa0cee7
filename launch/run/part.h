// SPDX-License-Identifier: Apache-2.0
// The part of a job that is on one host: what its ranks are started with, as text for a peal-run
// there to read, and how they are run. Thread safety: the main thread of a process that has no
// other.
#pragma once

#include <peal/launch/run/rank_environment.h>
#include <peal/launch/run/signals.h>
#include <peal/launch/run/supervisor.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace peal::launch {

struct Part {
  Attempt attempt;
  int first = 0, count = 1;  // its ranks
  bool tag = false, bind = true;
  double grace = 10, term_grace = 30;  // seconds
  std::vector<std::string> program;
  // For another host alone.
  std::string host = {};                   // as the user calls it
  std::string folder = {};                 // to start in
  std::vector<std::string> exported = {};  // NAME=VALUE, beside what that host has
};

std::string encode(const Part& part);
// Error where the text is none of encode()'s.
Part decode(std::string_view text);

// Of --grace and --term-grace, in seconds; what is more than years is years.
Patience patience_of(double grace, double term_grace);

// Until its ranks have ended. `reads`: rank 0 has this process's standard input. CannotStart.
Outcome run_part(const Part& part, Supervisor& supervisor, bool reads);

}  // namespace peal::launch
