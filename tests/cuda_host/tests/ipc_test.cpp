// SPDX-License-Identifier: Apache-2.0
// Collectives over CUDA IPC: ranks are processes whose simulated devices share memory.
#include "memory.h"
#include "on_rank.h"
#include "queue.h"
#include "queued.h"

#include <peal/comm/algorithms/table.h>
#include <peal/comm/start/cuda_ipc.h>
#include <peal/comm/start/threads.h>
#include <peal/comm/transport/cuda_ipc/cuda_ipc.h>

#include <doctest/doctest.h>
#include "collective_cases.h"
#include "collective_values.h"
#include "mpi_main.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using namespace peal;
using namespace peal::comm;
using peal::testing::OnDevice;

namespace {

const ProcessGroup& world() { return peal::testing::job().group(); }

// A group of its own over all ranks, with CUDA IPC, which the job's stays without.
ProcessGroup over_ipc(const CudaIpcOptions& options) {
  auto group = world().split(0);
  use_cuda_ipc(group, context().device, options);
  return group;
}

// Small rooms, so that messages go in several turns; larger ones, so that as long ones go at once.
constexpr CudaIpcOptions one_shot{.half = 32 << 10, .parcel = 256, .one_shot = 1 << 30};
constexpr CudaIpcOptions two_shot{.half = 512, .parcel = 256, .one_shot = 0};

template <class F>
void each_way(const F& f) {
  for (const CudaIpcOptions& options : {one_shot, two_shot}) f(over_ipc(options));
}

}  // namespace

TEST_CASE("every operation, type and reduction is exact over CUDA IPC") {
  const OnDevice here(world().rank());
  const auto group = over_ipc({.one_shot = 1000});
  CHECK(group.transport(here.device) == "cuda_ipc");
  const comm::testing::Tally tally = comm::testing::check_collectives(group);
  if (group.rank() == 0) {
    MESSAGE("cuda_ipc, world " << group.world() << ": " << tally.cases << " cases, "
                               << tally.compared << " elements compared, none wrong");
  }
  CHECK(tally.cases > 2000);
}

TEST_CASE("one-shot and two-shot, with rooms that are large and small") {
  const OnDevice here(world().rank());
  each_way([](const ProcessGroup& group) {
    peal::testing::check_order(group, 1000);
    comm::testing::check_algorithms(group);
  });
}

TEST_CASE("schedules run over mail, in messages that are longer than a parcel") {
  const OnDevice here(world().rank());
  const auto group = over_ipc(one_shot);
  const int ranks = group.world(), me = group.rank();
  const std::int64_t count = 150 * ranks;
  int ran = 0;
  for (const Entry& entry : algorithms()) {
    if (entry.what != Collective::all_reduce || !entry.supports(ranks)) continue;
    CAPTURE(entry.name);
    const std::vector<std::int64_t> counts{count};
    const Problem problem{.what = entry.what,
                          .rank = me,
                          .world = ranks,
                          .root = 0,
                          .counts = counts,
                          .nodes = single_node(ranks)};
    const auto plan = std::make_shared<const Plan>(comm::plan(entry, problem));
    const Tensor x = comm::testing::filled(
        count, DType::i32, [&](std::int64_t i) { return static_cast<double>(i % 7 + me); });
    group.run(entry.what, plan, x, x).wait();
    std::vector<std::int32_t> want;
    for (std::int64_t i = 0; i < count; ++i) {
      want.push_back(static_cast<std::int32_t>(ranks * (i % 7) + ranks * (ranks - 1) / 2));
    }
    CHECK(x.to_vector<std::int32_t>() == want);
    ++ran;
  }
  CHECK(ran >= (ranks == 1 ? 1 : 4));
}

TEST_CASE("device memory between processes is as strict as CUDA's documents") {
  const OnDevice here(world().rank());
  PEAL_CHECK(cudaSetDevice(here.device.index) == cudaSuccess, "no device");
  constexpr std::size_t bytes = 1 << 20;
  void* own = nullptr;
  REQUIRE(cudaMalloc(&own, bytes) == cudaSuccess);
  REQUIRE(cudaMemset(own, world().rank() + 1, bytes) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  cudaIpcMemHandle_t mine;
  CHECK(cudaIpcGetMemHandle(&mine, static_cast<char*>(own) + 256) == cudaErrorInvalidValue);
  REQUIRE(cudaIpcGetMemHandle(&mine, own) == cudaSuccess);
  void* opened = nullptr;
  CHECK(cudaIpcOpenMemHandle(&opened, mine, cudaIpcMemLazyEnablePeerAccess) ==
        cudaErrorInvalidResourceHandle);  // its own
  const auto handles = world().all_gather_object(std::string(mine.reserved, sizeof mine.reserved));
  const int next = (world().rank() + 1) % world().world();
  if (world().world() > 1) {
    cudaIpcMemHandle_t theirs;
    std::memcpy(theirs.reserved, handles[static_cast<std::size_t>(next)].data(), sizeof theirs);
    CHECK(cudaIpcOpenMemHandle(&opened, theirs, 0) == cudaErrorInvalidValue);
    REQUIRE(cudaIpcOpenMemHandle(&opened, theirs, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess);
    char byte = 0;
    CHECK(cudaMemcpy(&byte, static_cast<char*>(opened) + bytes - 1, 1, cudaMemcpyDefault) ==
          cudaSuccess);
    CHECK(byte == next + 1);
    CHECK(cudaFree(opened) == cudaErrorInvalidValue);
    world().barrier().wait();
    if (world().rank() == 0) {  // too early: a rank has it open
      CHECK(cudaFree(own) == cudaErrorIllegalAddress);
      CHECK(cuda_host::failure_text().find("freed while 1 other") != std::string::npos);
      cuda_host::forget_failure();
    }
    world().barrier().wait();
    CHECK(cudaIpcCloseMemHandle(opened) == cudaSuccess);
    CHECK(cudaIpcCloseMemHandle(opened) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(&byte, opened, 1, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    world().barrier().wait();
    if (next == 0) {  // what was freed cannot be opened any more
      CHECK(cudaIpcOpenMemHandle(&opened, theirs, cudaIpcMemLazyEnablePeerAccess) ==
            cudaErrorInvalidResourceHandle);
    }
    world().barrier().wait();
  }
  if (world().world() == 1 || world().rank() != 0) CHECK(cudaFree(own) == cudaSuccess);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("where memory ends") {
  if (world().world() == 1) return;  // it has none that others reach
  const OnDevice here(world().rank());
  const auto group = world().split(0);
  const CudaIpcTransport& ipc = use_cuda_ipc(group, here.device, two_shot);
  constexpr std::int64_t count = 2 << 20;  // f32: 8 MiB
  const auto used = [&] {
    memory_space(here.device).empty_cache(here.device);
    PEAL_CHECK(cudaSetDevice(here.device.index) == cudaSuccess, "no device");
    std::size_t free = 0, total = 0;
    PEAL_CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess, "cudaMemGetInfo failed");
    return total - free;
  };
  const auto leave = [&](std::size_t bytes) {
    cuda_host::limit_memory(here.device.index, used() + bytes);
  };
  const auto whole = [&] { cuda_host::limit_memory(here.device.index, std::size_t{2} << 30); };
  constexpr std::size_t half = 4 << 20;
  const std::size_t before = used();
  // One rank has too little: the others give theirs back, and all copy.
  const bool poor = group.rank() == 1;
  if (poor) leave(half);
  try {
    const Tensor bucket = group.allocate({count}, DType::f32, here.device);
    CHECK(!poor);
  } catch (const Error& error) {
    CHECK(poor);
    CHECK(std::string(error.what()).find("no memory left") != std::string::npos);
  }
  whole();
  CHECK(used() < before + half);
  // All have it in their caches.
  leave(2 * half + half / 2);
  { const Tensor cached = Tensor::zeros({count}, DType::f32, here.device); }
  for (int k = 1; k <= 2; ++k) {
    const Tensor bucket = group.allocate({count}, DType::f32, here.device);
    group.all_reduce(bucket.view().part(0, 100)).wait();
    CHECK(ipc.in_place() == k);
    group.barrier().wait();  // the engine has let go of it
    leave(half);             // for the next when this has been freed
  }
  whole();
  // Nobody keeps a room where one rank has none.
  const auto other = world().split(0);
  const std::size_t without = used();
  if (poor) leave(1 << 20);
  std::string said;
  try {
    use_cuda_ipc(other, here.device, two_shot);
  } catch (const Error& error) {
    said = error.what();
  }
  whole();
  CHECK(said.starts_with("[cuda_ipc] rank 1: cuda: cudaMalloc of 2097152 bytes"));
  CHECK(used() == without);
}

TEST_CASE("ranks that are threads are told to be processes") {
  if (world().world() > 1) return;
  std::atomic<int> told{0};
  run_ranks(2, [&](const ProcessGroup& group) {
    const OnDevice here(group.rank());
    try {
      use_cuda_ipc(group, here.device);
    } catch (const Error& error) {
      if (std::string(error.what()).find("ranks 0 and 1 are threads of one process") !=
          std::string::npos) {
        ++told;
      }
    }
    CHECK(group.transport(here.device) == "threads");
    comm::testing::check_algorithms(group);  // the group is as good as before
  });
  CHECK(told == 2);
}

TEST_CASE("collectives in the caller's stream come where they are called, over CUDA IPC") {
  const OnDevice here(world().rank());
  each_way([](const ProcessGroup& group) {
    peal::testing::check_in_stream(group, 1000, 1);
    const auto part = group.split(group.rank() % 2);  // in the same queue
    peal::testing::check_in_stream(part, 10, 1);
    peal::testing::check_in_stream(group, 10, 1);
  });
}

// The last case here: from then on the job's own group has it.
TEST_CASE("Job::device() takes CUDA IPC where ranks share a device, or where it is told") {
  launch::Job& job = peal::testing::job();
  if (job.world() < 3) setenv("PEAL_CUDA_TRANSPORT", "cuda_ipc", 1);  // there are two devices
  // A wrong option is everybody's error, and nothing is attached.
  if (job.world() > 1) {
    const auto said = [&] {
      try {
        job.device("cuda");
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    setenv("PEAL_IPC_ONE_SHOT", "512K", 1);
    CHECK(said() == "PEAL_IPC_ONE_SHOT: expected a number of bytes, got '512K'");
    if (job.rank() != 0) unsetenv("PEAL_IPC_ONE_SHOT");
    CHECK(said() ==
          "[launch] PEAL_IPC_ONE_SHOT is '512K' on rank 0 and '' on rank 1: start all ranks with "
          "one");
    unsetenv("PEAL_IPC_ONE_SHOT");
  }
  const Device device = job.device("cuda");
  unsetenv("PEAL_CUDA_TRANSPORT");
  CHECK(job.group().transport(device) == (job.world() == 1 ? job.group().transport() : "cuda_ipc"));
  const Tensor x = Tensor::zeros({100}, DType::i64, device);
  job.group().all_reduce(x).wait();
  CHECK(x.to_vector<std::int64_t>() == std::vector<std::int64_t>(100));
}
