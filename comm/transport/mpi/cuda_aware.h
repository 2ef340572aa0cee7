// SPDX-License-Identifier: Apache-2.0
// Whether MPI moves what lies on devices itself, so that device_aware.h can go over it.
// Thread safety: any thread.
#pragma once

namespace peal::comm {

// PEAL_MPI_CUDA_AWARE (0 or 1; anything else is an Error) where it is set, else what Open MPI says;
// false with another MPI. Open MPI says how it was built, and not whether it can on this machine.
bool mpi_reaches_devices();

}  // namespace peal::comm
