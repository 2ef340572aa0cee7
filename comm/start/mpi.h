// SPDX-License-Identifier: Apache-2.0
// A process group over MPI: for a program that called MPI_Init itself, and for launch/'s bootstrap.
#pragma once

#include <peal/comm/group/process_group.h>

#include <mpi.h>

#include <cstddef>

namespace peal::comm {

// Collective over `communicator`, which is duplicated. The ranks of a node share a board, and watch
// each other's processes. Messages past `piece` bytes (1 GiB at most) go in pieces. REQUIRES: MPI
// is initialised, and finalised only after the last handle of the group is gone. Errors: MPI is not
// initialised, and another `piece`.
ProcessGroup mpi_group(
    MPI_Comm communicator,
    const ProcessGroup::Options& options = ProcessGroup::Options::from_environment(),
    std::size_t piece = std::size_t{1} << 30);

// Before MPI_Finalize, where handles may outlive it: from here on no thread of peal's calls MPI,
// and what is called on groups is an Error.
void leave_mpi();

}  // namespace peal::comm
