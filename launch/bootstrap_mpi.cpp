// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/start/mpi.h>
#include <peal/comm/transport/mpi/communicator.h>
#include <peal/comm/transport/mpi/cuda_aware.h>
#include <peal/launch/bootstrap.h>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <system_error>
#include <thread>

namespace peal::launch {
namespace {

// MPI's own start and end wait for all ranks, and know of no deadline: for one that is stopped
// there, or never comes, for ever. Nobody can throw from within them; so where `call` takes longer
// than PEAL_TIMEOUT this process says so and ends, and its launcher ends the others. A short one is
// for calls of ranks that run; to start them takes seconds on a busy machine.
template <class F>
int in_time(std::string_view call, F&& f) {
  std::cout.flush();  // which _Exit() would drop
  std::fflush(nullptr);
  using std::chrono::milliseconds;
  constexpr milliseconds least{5000};
  constexpr milliseconds longest = std::chrono::hours(24 * 365);  // of a clock that has an end
  const milliseconds wanted = comm::ProcessGroup::Options::from_environment().deadline;
  const milliseconds deadline = std::clamp(wanted, least, longest);
  std::mutex mutex;
  std::condition_variable_any sleeps;
  std::jthread watch;
  try {
    watch = std::jthread([&, tag = context().log_tag](const std::stop_token& stop) {
      context().log_tag = tag;
      std::unique_lock lock(mutex);
      sleeps.wait_for(lock, stop, deadline, [] { return false; });
      if (stop.stop_requested()) return;
      log_error("[launch] ", call, " has not come back for ",
                std::chrono::duration<double>(deadline).count(),
                wanted < least ? " s (the least; PEAL_TIMEOUT is shorter)" : " s (PEAL_TIMEOUT)",
                ": it waits for all ranks, of which one has not come to it (does it work before it "
                "makes its Job?), stands still (SIGSTOP), or cannot be reached");
      std::_Exit(1);
    });
  } catch (const std::system_error&) {  // there is no thread to be had: without it, then
  }
  return f();
}

}  // namespace

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
  const int code = in_time("MPI_Init_thread", [&] {
    return MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  });
  PEAL_CHECK(code == MPI_SUCCESS, "[launch] MPI_Init_thread failed with code ", code);
  comm::return_errors(MPI_COMM_WORLD);  // nobody else's
  return true;
}

void finish_mpi() {
  comm::leave_mpi();
  in_time("MPI_Finalize", [] { return MPI_Finalize(); });
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
