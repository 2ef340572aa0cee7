// SPDX-License-Identifier: Apache-2.0
// MPI that reaches the memory of devices. Here any MPI does, for the devices are the CPU's memory,
// and their streams threads (tests/comm/queue_device.h).
#include <peal/comm/start/device_aware.h>
#include <peal/comm/start/mpi.h>
#include <peal/comm/transport/mpi/cuda_aware.h>

#include <cstdlib>

#include <doctest/doctest.h>
#include "collective_cases.h"
#include "mpi_main.h"
#include "on_rank.h"
#include "queue_device.h"

using namespace peal;

TEST_CASE("every operation, type and reduction is exact on devices, directly over MPI") {
  peal::testing::register_queue_device();
  const int rank = peal::testing::job().rank();
  const peal::testing::OnDevice here(rank);
  const auto group = comm::mpi_group(MPI_COMM_WORLD);
  CHECK(group.transport(here.device) == "mpi");
  use_device_aware(group, here.device);
  CHECK(group.transport(here.device) == "device-aware mpi");
  const comm::testing::Tally tally = comm::testing::check_collectives(group);
  if (rank == 0) {
    MESSAGE("device-aware mpi, world " << group.world() << ": " << tally.cases
                                       << " cases, none wrong");
  }
  CHECK(tally.cases > 2000);
  const auto in_pieces = comm::mpi_group(MPI_COMM_WORLD, {}, 1000);
  use_device_aware(in_pieces, here.device);
  comm::testing::check_algorithms(in_pieces.split(0));
}

TEST_CASE("whether MPI reaches devices is what it says, or the user") {
  unsetenv("PEAL_MPI_CUDA_AWARE");
  const bool says = comm::mpi_reaches_devices();
  MESSAGE("MPI says that it is CUDA-aware: " << says);
  setenv("PEAL_MPI_CUDA_AWARE", "1", 1);
  CHECK(comm::mpi_reaches_devices());
  setenv("PEAL_MPI_CUDA_AWARE", "0", 1);
  CHECK(!comm::mpi_reaches_devices());
  setenv("PEAL_MPI_CUDA_AWARE", "yes", 1);
  CHECK_THROWS_WITH_AS(comm::mpi_reaches_devices(), doctest::Contains("expected 0 or 1"), Error);
  unsetenv("PEAL_MPI_CUDA_AWARE");
}
