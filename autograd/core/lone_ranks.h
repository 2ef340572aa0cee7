// SPDX-License-Identifier: Apache-2.0
// Lone ranks: processes that a launcher started together, of a program that never brings them
// together. `mpirun -n 2` of a program without a launch::Job trains twice on all data, and both
// write the same files, without a word. Thread safety: any thread.
#pragma once

#include <functional>
#include <string>

namespace peal {

// Said by whoever brings this process's ranks together (launch::Job, comm::mpi_group).
void ranks_are_joined();

// Asked by what a program does with a model: backward(), a loader's epoch, saving. One warning a
// job, from its first rank, where nobody said so and the environment knows of several ranks.
void warn_of_lone_ranks();

// The warning's text, or nothing; `env` looks a variable up, null when unset. Pure.
std::string lone_ranks(const std::function<const char*(const char*)>& env);

}  // namespace peal
