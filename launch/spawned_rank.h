// SPDX-License-Identifier: Apache-2.0
// What a rank of spawn() runs, be it a thread or a process. Thread safety: a rank's thread.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/launch/job.h>

#include <functional>
#include <string>

namespace peal::launch {

// f with a Job in the group. What it throws becomes an Error that names the rank and has the
// exception nested; `failed` hears its message, and whether it was this rank that failed, and no
// other before, and then the other ranks do.
void run_spawned(const comm::ProcessGroup& group, const std::function<void(Job&)>& f,
                 const std::function<void(const std::string& message, bool first)>& failed = {});

// This thread's rank, or -1 where it is none of spawn()'s.
int spawned_as();

}  // namespace peal::launch
