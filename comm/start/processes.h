// SPDX-License-Identifier: Apache-2.0
// A process group of processes that nothing joins but a rendezvous: no MPI, no launcher's library.
// Within a node collectives run in memory that the ranks share, messages too; between nodes they
// go over TCP.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/comm/store/rendezvous.h>

#include <string>

namespace peal::comm {

// Collective over the ranks, who watch each other's processes from then on, those of other nodes by
// their connections; the rendezvous may go once it returns. `secret`: of the job, as its store's
// (tcp_store.h), equal on all; who calls from another node shows that it knows it. REQUIRES: no
// rank's process ends before all have let go of the group: to the others it would have died.
// NoSharedMemory, on all ranks, where there is no room in /dev/shm and they are on one node; Error
// where ranks of several do not reach each other within the options' deadline.
ProcessGroup processes_group(
    Rendezvous& ranks,
    const ProcessGroup::Options& options = ProcessGroup::Options::from_environment(),
    const std::string& secret = {});

}  // namespace peal::comm
