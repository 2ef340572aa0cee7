// SPDX-License-Identifier: Apache-2.0
// What NCCL has collectives of its own for, as in transport/mpi/native.h for MPI. Thread safety:
// pure functions.
#pragma once

#include <peal/comm/transport/transport.h>

#include <nccl.h>

namespace peal::comm {

// NCCL has no bit operations, its bool is a byte, its blocks are of equal size, and it says nothing
// of NaN in min and max: schedules do these.
bool nccl_has_native(const NativeCall& call);

// REQUIRES: nccl_has_native(call), and no factor to apply.
ncclDataType_t nccl_type(DType dtype);
ncclRedOp_t nccl_reduction(const NativeCall& call);

}  // namespace peal::comm
