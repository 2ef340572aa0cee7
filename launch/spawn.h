// SPDX-License-Identifier: Apache-2.0
// Spawn: the ranks of a job as threads or processes that this one starts, for notebooks, tests and
// machines without MPI (PyTorch: torch.multiprocessing.spawn; Accelerate: notebook_launcher).
//
//   launch::notebook_launcher(4, [](launch::Job& job) {
//     nn::BasicNet net;
//     nn::DistributedDataParallel ddp(net, job.group());
//     ...
//   });
//
// Each rank has a Job of its own, as under mpirun, and a context (generator, device, log tag) that
// it inherits from the caller. Nothing outlives the call: it can be made again, as often as wanted,
// with any number of ranks.
//
// Threads share what the process shares: a variable that f captures is one for all, and so can be
// f's result. Processes (processes.h, which says when they may be started) have copies, and one
// that crashes is an error of the call. Collectives are as fast between them as between threads;
// between threads what all do in this process is one lock's, malloc's for one.
//
// Thread safety: any thread; several calls may be under way, of threads.
#pragma once

#include <peal/launch/job.h>

#include <functional>

namespace peal::launch {

enum class StartMethod { threads, fork };

// Runs f on `ranks` threads or processes and returns when all are done. Where one throws, the
// others' collectives fail with its message, and an Error with that, and with its rank, is thrown
// here. Of threads the exception itself is nested in it (std::rethrow_if_nested); of processes it
// is a ProcessRaisedException, or a ProcessExitedException where one ended otherwise.
void spawn(int ranks, const std::function<void(Job&)>& f,
           StartMethod start_method = StartMethod::threads);

// The same, for a program's or a notebook's first line: Error where this is a rank already, of
// spawn() or of a launcher that started several processes, each of which would start as many again.
void notebook_launcher(int ranks, const std::function<void(Job&)>& f,
                       StartMethod start_method = StartMethod::threads);

}  // namespace peal::launch
