// SPDX-License-Identifier: Apache-2.0
// Ranks that call different things. In shared memory they never meet. By messages, over a library
// that buffers small ones, no rank waits for another in the call that differs, so it is found by
// the next that does. Ranks without common memory tell each other by messages what they wait for.
#include <peal/comm/start/mpi.h>

#include <dlfcn.h>
#include <sys/types.h>

#include <cerrno>
#include <functional>
#include <string_view>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include "mismatch_cases.h"
#include "mpi_main.h"
#include "pretend.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::comm::testing;
using peal::testing::check_has;
using peal::testing::error_of;
using peal::testing::job;
using peal::testing::Pretend;

namespace {

bool disk_is_full = false;  // no segment gets its bytes

void check_all(std::string_view where, const ProcessGroup::Options& options) {
  for (const Mismatch& mismatch : mismatches()) {
    const auto group = mpi_group(MPI_COMM_WORLD, options);
    REQUIRE(group.world() == 3);
    const Told told = run_mismatch(mismatch, group, Device{});
    if (group.rank() == 0) print_mismatch(where, mismatch, told);
    check_mismatch(mismatch, told.error);
    CHECK(group.poisoned());
    job().group().barrier().wait();
  }
}

}  // namespace

// The system's own, but where a test says otherwise.
extern "C" int posix_fallocate(int file, off_t at, off_t bytes) {
  if (disk_is_full) return ENOSPC;
  using Call = int(int, off_t, off_t);
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, "posix_fallocate"))(file, at, bytes);
}

TEST_CASE("ranks whose calls differ are all told who calls what, in memory and by messages") {
  check_all("MPI, shared memory", before_the_deadline);
  ProcessGroup::Options messages = before_the_deadline;
  messages.shared_memory = false;
  check_all("MPI, messages", messages);
}

TEST_CASE("ranks without shared memory are all told who calls what") {
  disk_is_full = true;
  check_all("MPI, no room in /dev/shm", before_the_deadline);
  disk_is_full = false;
}

TEST_CASE("ranks on two nodes are all told who calls what") {
  const Pretend nodes([](int rank) { return rank / 2; });
  check_all("MPI, two nodes", before_the_deadline);
}

TEST_CASE("why a rank fails is heard on other nodes") {
  const Pretend nodes([](int rank) { return rank; });
  const auto group = mpi_group(MPI_COMM_WORLD, before_the_deadline);
  if (group.rank() == 2) {
    group.abort("[rank 2] no more samples");
  } else {
    check_has(error_of([&] { group.barrier().wait(); }), "[rank 2] no more samples");
  }
  job().group().barrier().wait();
}

TEST_CASE("why a rank fails in a group is heard by the rest of the world") {
  const Pretend nodes([](int rank) { return rank; });
  const auto group = mpi_group(MPI_COMM_WORLD, before_the_deadline);
  const auto part = group.new_group({1, 2});
  if (group.rank() == 2) {
    part.abort("[rank 2] no more samples");
    job().group().barrier().wait();  // what else it does tells nobody
  } else {
    check_has(error_of([&] { group.barrier().wait(); }), "[rank 2] no more samples");
    job().group().barrier().wait();
  }
}
