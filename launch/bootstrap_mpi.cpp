// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/start/mpi.h>
#include <peal/comm/transport/mpi/communicator.h>
#include <peal/comm/transport/mpi/cuda_aware.h>
#include <peal/launch/bootstrap.h>

#include <mpi.h>

namespace peal::launch {

bool mpi_was_started() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  return initialized != 0;
}

bool start_mpi() {
  if (mpi_was_started()) return false;
  // A thread of the engine's may call MPI beside the training thread, and beside what that asks MPI
  // for itself (comm/engine/progress_thread.h). Where MPI gives less, there is none.
  int provided = 0;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  PEAL_CHECK(code == MPI_SUCCESS, "[launch] MPI_Init_thread failed with code ", code);
  comm::return_errors(MPI_COMM_WORLD);  // nobody else's
  return true;
}

void finish_mpi() {
  comm::leave_mpi();
  MPI_Finalize();
}

std::pair<int, int> mpi_world() {
  int rank = 0, world = 1;
  const comm::MpiThreads threads;
  const auto turn = threads.turn();
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  return {rank, world};
}

bool mpi_reaches_devices() { return comm::mpi_reaches_devices(); }

comm::ProcessGroup mpi_world_group() { return comm::mpi_group(MPI_COMM_WORLD); }

}  // namespace peal::launch
