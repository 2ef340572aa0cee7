// SPDX-License-Identifier: Apache-2.0
// SIGUSR1 shows what ranks hang in, and the records of a rank that is killed are among those of a
// failure, also where it is killed while it writes them.
#include <doctest/doctest.h>
#include <peal/launch/processes.h>
#include <peal/launch/spawn.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

using namespace peal;
using namespace peal::testing;
using launch::Job;

namespace {

// Of all processes: the first to rename a record is killed there. Null: none is.
std::atomic<int>* renamers = nullptr;

void wait_for(const std::filesystem::path& path, const std::string& part) {
  while (!contains(content_of(path), part)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Rank 1 hangs outside of peal, the others wait for it.
void hang(Job& job, const std::filesystem::path& folder) {
  const Tensor data = Tensor::zeros({4});
  job.group().all_reduce(data).wait();
  std::ofstream(folder / concat("here-", job.rank())) << "here";
  if (job.rank() == 1) {
    for (;;) pause();
  }
  job.group().all_reduce(data, comm::ReduceOp::max, "bucket 5").wait();
}

void wait_until_here(const std::filesystem::path& folder) {
  for (int rank = 0; rank < 3; ++rank) wait_for(folder / concat("here-", rank), "here");
}

}  // namespace

// The C library's own, but for that.
extern "C" int rename(const char* from, const char* to) noexcept {
  if (renamers != nullptr && contains(to, ".flight.") && renamers->fetch_add(1) == 0) {
    ::kill(getpid(), SIGKILL);
  }
  using Call = int(const char*, const char*);
  return reinterpret_cast<Call*>(dlsym(RTLD_NEXT, "rename"))(from, to);
}

TEST_CASE("who is killed while it writes the records leaves them to the others") {
  const Folder folder;
  void* const memory =
      mmap(nullptr, sizeof *renamers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  setenv("PEAL_FLIGHT", folder.path.c_str(), 1);
  renamers = new (memory) std::atomic<int>{0};
  auto context = launch::start_processes(
      3,
      [&](Job& job) {
        job.group().barrier().wait();
        if (job.rank() == 1) fail("rank 1 fails");
        job.group().barrier().wait();
      },
      std::chrono::seconds(20));
  unsetenv("PEAL_FLIGHT");
  CHECK_THROWS_AS(context.join(), launch::ProcessException);
  CHECK(renamers->load() > 1);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string text =
        content_of(path_ending(folder.path, concat(".rank-", rank, ".flight.txt")));
    CHECK(contains(text, "rank 1 fails"));
  }
  renamers = nullptr;
  munmap(memory, sizeof *renamers);
}

TEST_CASE("a signal writes what each rank is in, and a death what all were in") {
  const Folder folder;
  setenv("PEAL_FLIGHT", (folder.path / "records").c_str(), 1);
  const auto file = [&](int rank) {
    return path_ending(folder.path / "records", concat(".rank-", rank, ".flight.txt"));
  };
  auto context = launch::start_processes(3, [&](Job& job) { hang(job, folder.path); });
  unsetenv("PEAL_FLIGHT");
  wait_until_here(folder.path);
  const auto pids = context.pids();
  for (int rank = 0; rank < 3; ++rank) {
    const std::string awaited = rank == 1 ? "(sum of 4 f32)" : "bucket 5";
    while (!contains(content_of(file(rank)), awaited)) {  // it may not have come to it
      REQUIRE(::kill(pids[static_cast<std::size_t>(rank)], SIGUSR1) == 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    CHECK(contains(content_of(file(rank)), "written because: SIGUSR1"));
    CHECK(contains(content_of(file(rank)), "(sum of 4 f32)"));
  }
  CHECK(!contains(content_of(file(1)), "bucket 5"));
  REQUIRE(::kill(context.pids()[1], SIGKILL) == 0);
  CHECK_THROWS_AS(context.join(), launch::ProcessExitedException);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string text = content_of(file(rank));
    CAPTURE(text);
    CHECK(contains(text, "rank 1 (process "));
    CHECK(contains(text, "has died"));
    CHECK(contains(text, "bucket 5") == (rank != 1));
  }
}

TEST_CASE("without a folder the signal's answer goes to stderr") {
  const Folder folder;
  const std::string log = stderr_of([&] {
    auto context = launch::start_processes(3, [&](Job& job) { hang(job, folder.path); });
    wait_until_here(folder.path);
    const int late = context.pids()[0];
    while (true) {  // until it has come to the second call
      REQUIRE(::kill(late, SIGUSR1) == 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (contains(content_of(std::filesystem::read_symlink("/proc/self/fd/2")), "bucket 5")) break;
    }
  });
  CHECK(contains(log, "SIGUSR1: rank 0 of 3"));
  CHECK(contains(log, "under way  all_reduce #"));
  CHECK(contains(log, "(max of 4 f32; bucket 5)"));
}

TEST_CASE("a program's own handler of the signal stays") {
  struct sigaction own {};
  static volatile sig_atomic_t seen = 0;
  own.sa_handler = [](int) { seen = 1; };
  struct sigaction before {};
  REQUIRE(sigaction(SIGUSR1, &own, &before) == 0);
  launch::spawn(2, [](Job& job) { job.group().barrier().wait(); });
  ::raise(SIGUSR1);
  CHECK(seen == 1);
  sigaction(SIGUSR1, &before, nullptr);
}
