// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/bootstrap.h>

namespace peal::launch {

bool mpi_was_started() { return false; }

bool start_mpi() {
  fail(
      "[launch] the environment says that there are several ranks, but this build has no MPI; "
      "configure with -DPEAL_MPI=ON, or start them without it: by peal-run, or by `srun "
      "--mpi=none` with MASTER_ADDR and MASTER_PORT set");
}

void finish_mpi() {}
bool mpi_reaches_devices() { return false; }
std::pair<int, int> mpi_world() { return {0, 1}; }
comm::ProcessGroup mpi_world_group() { return comm::ProcessGroup::alone(); }

}  // namespace peal::launch
