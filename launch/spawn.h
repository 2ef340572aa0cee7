// SPDX-License-Identifier: Apache-2.0
// Spawn: the ranks of a job as threads of this process, for notebooks, tests and machines without
// MPI (PyTorch: torch.multiprocessing.spawn; Accelerate: notebook_launcher).
//
//   launch::notebook_launcher(4, [](launch::Job& job) {
//     nn::BasicNet net;
//     nn::DistributedDataParallel ddp(net, job.group());
//     ...
//   });
//
// Each rank has a Job of its own, as under mpirun, and a context (generator, device, log tag) that
// it inherits from the caller. Nothing outlives the call: it can be made again, as often as wanted,
// with any number of ranks. Ranks share what the process shares: a variable that f captures is one
// for all. Thread safety: any thread; several calls may be under way.
#pragma once

#include <peal/launch/job.h>

#include <functional>

namespace peal::launch {

// Runs f on `ranks` threads and returns when all are done. Where one throws, the others'
// collectives fail with its message, and an Error with that, and with its rank, is thrown here; the
// exception itself is nested in it (std::rethrow_if_nested).
void spawn(int ranks, const std::function<void(Job&)>& f);

// The same, for a program's or a notebook's first line: Error where this is a rank already, of
// spawn() or of a launcher that started several processes, each of which would start as many again.
void notebook_launcher(int ranks, const std::function<void(Job&)>& f);

}  // namespace peal::launch
