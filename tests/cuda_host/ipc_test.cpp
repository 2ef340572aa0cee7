// SPDX-License-Identifier: Apache-2.0
// Collectives over CUDA IPC: ranks are processes whose simulated devices share memory.
#include "on_rank.h"
#include "queued.h"

#include <peal/autograd/core/cuda/device.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/transport/cuda_ipc/cuda_ipc.h>

#include <doctest/doctest.h>
#include "collective_cases.h"
#include "collective_values.h"
#include "mpi_main.h"

using namespace peal;
using namespace peal::comm;

namespace {

// A group of its own over all ranks, with CUDA IPC, which the job's stays without.
std::shared_ptr<ProcessGroup> over_ipc(Device device, const CudaIpcOptions& options) {
  auto group = peal::testing::job().group().split(0);
  use_cuda_ipc(*group, device, options);
  return group;
}

// Small rooms, so that messages go in several turns.
constexpr CudaIpcOptions one_shot{.half = 4096, .parcel = 1024, .one_shot = 1 << 30};
constexpr CudaIpcOptions two_shot{.half = 4096, .parcel = 1024, .one_shot = 0};

}  // namespace

TEST_CASE("every operation, type and reduction is exact over CUDA IPC") {
  cuda::register_spaces();
  const int rank = peal::testing::job().rank();
  const peal::testing::OnDevice here(rank);
  for (const auto& options : {one_shot, two_shot}) {
    const auto group = over_ipc(here.device, options);
    CHECK(group->transport(here.device) == "cuda_ipc");
    const comm::testing::Tally tally = comm::testing::check_collectives(*group);
    peal::testing::check_order(*group, 3000);
    if (rank == 0) {
      MESSAGE("cuda_ipc, world " << group->world() << ": " << tally.cases << " cases, "
                                 << tally.compared << " elements compared, none wrong");
    }
    CHECK(tally.cases > 2000);
  }
}
