// SPDX-License-Identifier: Apache-2.0
// Ranks that call different things, over a library that buffers small messages: no rank waits for
// another in the call that differs, so it is found by the next that does.
#include <peal/comm/start/mpi.h>

#include <chrono>

#include <doctest/doctest.h>
#include "mpi_main.h"

using namespace peal;
using namespace peal::comm;

TEST_CASE("a broadcast whose root differs ends with an error on all ranks that names both calls") {
  const auto group = mpi_group(MPI_COMM_WORLD, {.deadline = std::chrono::seconds(60)});
  REQUIRE(group.world() == 3);
  const Tensor data = Tensor::zeros({16});
  group.broadcast(data, group.rank() == 1 ? 1 : 0).wait();
  CHECK_THROWS_WITH_AS(group.barrier().wait(), doctest::Contains("(16 f32, root 1)"), Error);
  CHECK(group.poisoned());
}
