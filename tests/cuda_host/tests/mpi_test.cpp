// SPDX-License-Identifier: Apache-2.0
// Collectives on device tensors over MPI: each process has simulated devices of its own.
#include "on_rank.h"
#include "queued.h"

#include <peal/autograd/core/cuda/device.h>

#include <doctest/doctest.h>
#include "collective_cases.h"
#include "mpi_main.h"

using namespace peal;

TEST_CASE("every operation, type and reduction is exact on devices, staged over MPI") {
  cuda::register_spaces();
  const comm::ProcessGroup& group = testing::job().group();
  const testing::OnDevice here(group.rank());
  const comm::testing::Tally tally = comm::testing::check_collectives(group);
  if (group.rank() == 0) {
    MESSAGE(group.transport(here.device) << ", world " << group.world() << ": " << tally.cases
                                         << " cases of device tensors, none wrong");
  }
  CHECK(group.transport(here.device) == "mpi");
  testing::check_order(group, 3000);
}
