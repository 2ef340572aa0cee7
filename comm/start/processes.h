// SPDX-License-Identifier: Apache-2.0
// A process group of processes of one node, which nothing joins but a rendezvous: no MPI, no
// launcher's library. Collectives run in memory that the ranks share, messages too.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/comm/store/rendezvous.h>

namespace peal::comm {

// Collective over the ranks, who watch each other's processes from then on; the rendezvous may go
// once it returns. REQUIRES: no rank's process ends before all have let go of the group: to the
// others it would have died. Error, on all ranks, where they are on several nodes, and
// NoSharedMemory where there is no room in /dev/shm.
ProcessGroup processes_group(Rendezvous& ranks, const ProcessGroup::Options& options =
                                                    ProcessGroup::Options::from_environment());

}  // namespace peal::comm
