// SPDX-License-Identifier: Apache-2.0
// A process group over MPI: for a program that called MPI_Init itself, and for launch/'s bootstrap.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/comm/transport/mpi/mpi.h>

#include <mpi.h>

#include <memory>

namespace peal::comm {

// Collective over `communicator`, which is duplicated. The ranks of a node share a board, and watch
// each other's processes. Messages past `piece` bytes go in pieces, as MpiTransport says. REQUIRES:
// MPI is initialised, and finalised only after the group is gone.
std::shared_ptr<ProcessGroup> mpi_group(
    MPI_Comm communicator,
    const ProcessGroup::Options& options = ProcessGroup::Options::from_environment(),
    std::size_t piece = MpiTransport::largest_piece);

}  // namespace peal::comm
