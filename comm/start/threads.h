// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process: for tests, for teaching, and for notebooks.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/comm/simulate/wire.h>

#include <functional>

namespace peal::comm {

// Runs f(group) on `world` threads, each a rank with a group over all of them, and returns when all
// have. If one throws, the others' collectives fail with its message, and the first error is thrown
// here. Threads inherit the caller's context (its generator too, so that seeds are alike) with a
// log tag of their own. Error for a world below 1.
void run_ranks(int world, const std::function<void(const ProcessGroup&)>& f);
void run_ranks(int world, const ProcessGroup::Options& options,
               const std::function<void(const ProcessGroup&)>& f);
// The same over a wire that is slow, jittery or lossy. The world's group is made over a perfect
// one, so a link's message 0 is the first that f sends.
void run_ranks(int world, const ProcessGroup::Options& options, const Wire& wire,
               const std::function<void(const ProcessGroup&)>& f);

// The same as if the ranks were on several nodes: `nodes` says which rank is on which, for
// schedules that see nodes. Only the wire makes anything slower between them.
void run_ranks(int world, const ProcessGroup::Options& options, const Topology& nodes,
               const std::function<void(const ProcessGroup&)>& f);
void run_ranks(int world, const ProcessGroup::Options& options, const Topology& nodes,
               const Wire& wire, const std::function<void(const ProcessGroup&)>& f);

}  // namespace peal::comm
