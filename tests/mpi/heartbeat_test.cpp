// SPDX-License-Identifier: Apache-2.0
// Ranks of other nodes that work for long, or stand still at it, over MPI's control plane.
#include <peal/comm/start/mpi.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include "mpi_main.h"
#include "pretend.h"

using namespace peal;
using peal::testing::contains;
using peal::testing::error_of;
using peal::testing::Pretend;
using std::chrono::milliseconds;

namespace {

// Each rank on a node of its own.
comm::ProcessGroup apart() {
  const Pretend pretend([](int rank) { return rank; });
  return comm::mpi_group(MPI_COMM_WORLD, {.deadline = milliseconds(2000)});
}

// This process stands still for so long.
void stand_still(milliseconds time) {
  const pid_t self = getpid(), child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::this_thread::sleep_for(time);
    kill(self, SIGCONT);
    _exit(0);
  }
  raise(SIGSTOP);
  waitpid(child, nullptr, 0);
}

}  // namespace

TEST_CASE("over MPI who works on another node is waited for, past the deadline") {
  const auto group = apart();
  group.barrier().wait();
  std::string error = "nothing";
  if (group.rank() == 0) {
    const auto busy = group.busy("downloads");
    std::this_thread::sleep_for(milliseconds(4000));
  }
  error = error_of([&] { group.barrier().wait(); });
  CHECK(error == "nothing");
  testing::job().group().barrier().wait();
}

TEST_CASE("over MPI who stands still at its work on another node is told by the deadline") {
  const auto group = apart();
  group.barrier().wait();
  if (group.world() > 1 && group.rank() == 0) {
    const auto busy = group.busy("downloads");
    std::this_thread::sleep_for(milliseconds(1000));
    stand_still(milliseconds(4000));
  }
  const std::string error = error_of([&] { group.barrier().wait(); });
  CAPTURE(error);
  if (group.world() > 1 && group.rank() > 0) {
    CHECK(contains(error, "PEAL_TIMEOUT"));
    CHECK(contains(error, "rank 0, elsewhere: said "));
    CHECK(contains(error, "that it works (downloads), and nothing since"));
  }
  testing::job().group().barrier().wait();
}
