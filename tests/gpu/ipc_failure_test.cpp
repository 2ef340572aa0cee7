// SPDX-License-Identifier: Apache-2.0
// What goes wrong over CUDA IPC reaches the rank that has nothing but its device's queue to wait
// for, in words, and its kernels end. Each case breaks the group: they are run one at a time, with
// two ranks, and say so when all was well.
#include <peal/comm/start/cuda_ipc.h>
#include <peal/comm/transport/cuda_ipc/cuda_ipc.h>
#include <peal/launch/devices.h>

#include <doctest/doctest.h>
#include "mpi_main.h"

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>

using namespace peal;
using namespace peal::comm;

namespace {

// Rank 0 queues an all-reduce of `count` elements and waits for its device alone; then the next
// call must throw what contains `words`. The other rank does f. The process ends here: MPI's
// shutdown would wait for a job that has failed.
void told(std::int64_t count, const char* words,
          const std::function<void(const ProcessGroup&)>& f) {
  const ProcessGroup& group = peal::testing::job().group();
  const Device device =
      launch::choose_device("cuda", peal::testing::job().where(), device_count(DeviceType::cuda));
  use_cuda_ipc(group, device, {.one_shot = 64});
  std::string said = "nothing";
  try {
    const Tensor data = Tensor::zeros({count}, DType::f32, device);
    group.all_reduce(Tensor::zeros({10}, DType::f32, device)).synchronize();
    group.barrier().wait();
    if (group.rank() == 0) {
      const Work work = group.all_reduce(data);
      work.wait();
      current_stream(device).synchronize();
      work.wait();
      group.barrier().wait();
    } else {
      f(group);
      while (!group.poisoned()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  } catch (const Error& error) {
    said = error.what();
  }
  const bool well = said.find(words) != std::string::npos;
  if (group.rank() == 0) {
    std::printf("%s: %s\n", well ? "all was well" : "FAILED", said.c_str());
    std::fflush(stdout);
    std::_Exit(well ? 0 : 1);
  }
  // The other rank's end must not be the first that the launcher sees.
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

}  // namespace

TEST_CASE("a rank that fails") {
  told(10, "disk of rank 1 is on fire", [](const ProcessGroup& group) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    group.poison("[test] disk of rank 1 is on fire");
  });
}

TEST_CASE("a rank that does not come") {
  told(1000, "PEAL_TIMEOUT", [](const ProcessGroup&) {});
}

// By a schedule (PEAL_ALGO), whose messages are as long.
TEST_CASE("a rank that reduces otherwise") {
  told(1000, "same order", [](const ProcessGroup& group) {
    const Device device{DeviceType::cuda, group.rank() % device_count(DeviceType::cuda)};
    const Work work = group.all_reduce(Tensor::zeros({1000}, DType::f32, device), ReduceOp::max);
    work.wait();
    current_stream(device).synchronize();
  });
}

TEST_CASE("a rank that calls something else") {
  told(1000, "same order", [](const ProcessGroup& group) {
    const Device device{DeviceType::cuda, group.rank() % device_count(DeviceType::cuda)};
    const Work work = group.all_reduce(Tensor::zeros({1001}, DType::f32, device));
    work.wait();
    current_stream(device).synchronize();
  });
}
