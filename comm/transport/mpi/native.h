// SPDX-License-Identifier: Apache-2.0
// Which collectives MPI itself runs for us, by collective, type, reduction and count. It sees no
// MPI, so that a table can be printed without one (peal-schedule native). The answer depends on
// nothing that may differ between ranks, buffers least of all: all must decide alike.
// Thread safety: pure functions.
#pragma once

#include <peal/comm/transport/transport.h>

#include <limits>

namespace peal::comm {

// MPI counts elements in ints; past that a schedule runs, whose messages go in pieces.
inline constexpr std::int64_t mpi_native_limit = std::numeric_limits<int>::max();

bool mpi_has_native(const NativeCall& call);

}  // namespace peal::comm
