// SPDX-License-Identifier: Apache-2.0
// Launcher (torchrun, mpirun, accelerate launch): starts a program as the ranks of a job, without
// MPI, watches over them, and starts them again where that is asked for. It is what peal-run does,
// and `peal launch`, which fills in from a file what its command line leaves open (options.h).
// Thread safety: the main thread of a process that has no other.
#pragma once

#include <peal/launch/run/options.h>

#include <string>
#include <vector>

namespace peal::launch {

// The exit status: that of the first rank that fails, or 128 and its signal; 2 for a mistake, which
// was printed. `arguments`: without the program's own name.
int start_ranks(const std::vector<std::string>& arguments, const Caller& caller = {});

}  // namespace peal::launch
