// SPDX-License-Identifier: Apache-2.0
// Ranks that call different things. In shared memory they never meet. By messages, over a library
// that buffers small ones, no rank waits for another in the call that differs, so it is found by
// the next that does.
#include <peal/comm/start/mpi.h>

#include <chrono>

#include <doctest/doctest.h>
#include "mpi_main.h"

using namespace peal;
using namespace peal::comm;

TEST_CASE("a broadcast whose root differs ends with an error on all ranks that names both calls") {
  for (const bool shared : {true, false}) {
    CAPTURE(shared);
    const auto group =
        mpi_group(MPI_COMM_WORLD, {.deadline = std::chrono::seconds(60), .shared_memory = shared});
    REQUIRE(group.world() == 3);
    const Tensor data = Tensor::zeros({16});
    const Work work = group.broadcast(data, group.rank() == 1 ? 1 : 0);
    if (!shared) work.wait();
    CHECK_THROWS_WITH_AS(shared ? work.wait() : group.barrier().wait(),
                         doctest::Contains("(16 f32, root 1)"), Error);
    CHECK(group.poisoned());
  }
}
