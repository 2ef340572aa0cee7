// SPDX-License-Identifier: Apache-2.0
// Collectives of device tensors between processes, each with the device that Job::device() gives
// it: over NCCL where every rank has one of its own (or says so by NCCL_HOSTID), else over CUDA
// IPC, or through MPI where PEAL_CUDA_TRANSPORT says so. Started by tests/gpu/run.sh.
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/ops/ops.h>
#include <peal/launch/bootstrap.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include "collective_cases.h"
#include "mpi_main.h"

using namespace peal;

TEST_CASE("every operation, type and reduction is exact between processes with devices") {
  launch::Job& job = testing::job();
  context().device = job.device("cuda");
  const std::string over(job.group().transport(context().device));
  // tests/gpu/run.sh starts them on one GPU, where NCCL takes processes with hosts of their own.
  const bool own_hosts = std::getenv("NCCL_HOSTID") != nullptr;
  const char* chosen = std::getenv("PEAL_CUDA_TRANSPORT");
  const std::string through_mpi = launch::mpi_reaches_devices() ? "device-aware mpi" : "mpi";
  const std::string unsaid = own_hosts ? "nccl" : "cuda_ipc";
  const std::string wanted = chosen == nullptr ? unsaid : chosen;
  if (job.world() > 1) CHECK(over == (wanted == "mpi" ? through_mpi : wanted));
  const comm::testing::Tally tally = comm::testing::check_collectives(job.group());
  comm::testing::check_algorithms(job.group());
  if (job.is_main()) {
    MESSAGE(job.group().transport()
            << ", world " << job.world() << ": " << tally.cases << " cases, " << tally.compared
            << " elements compared, none wrong");
  }
  CHECK(tally.cases > 2000);
}

TEST_CASE("a captured all-reduce replays between processes") {
  launch::Job& job = testing::job();
  const Device device = context().device = job.device("cuda");
  if (job.group().transport(device) != "nccl") return;  // the host's cannot be captured
  const Tensor x = Tensor::empty({1000}, DType::f32, device);
  Graph graph(device);
  Tensor y;
  for (int step = 0; step < 6; ++step) {
    x.copy_(full({1000}, job.rank() + step, DType::f32, device));
    graph.run([&] {
      y = x * 2.0;
      job.group().all_reduce(y).wait();
    });
    const int n = job.world();
    CHECK(y.to_vector<float>() ==
          std::vector<float>(1000, static_cast<float>(n * (n - 1) + 2 * n * step)));
  }
  CHECK(graph.captured());
}
