// SPDX-License-Identifier: Apache-2.0
// What can go wrong between peal and MPI, made to happen below MPI.
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/mpi.h>
#include <peal/launch/job.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include "below_mpi.h"
#include "mpi_main.h"

using namespace peal;
using peal::testing::below_mpi;
using peal::testing::contains;
using peal::testing::error_of;
using std::chrono::milliseconds;

namespace {

Tensor filled(std::int64_t count, int value) {
  const std::vector<float> values(static_cast<std::size_t>(count), static_cast<float>(value));
  return Tensor::from(values, {count});
}

// Says something else for as long as it lives.
class Pretend {
 public:
  Pretend(std::atomic<int>& what, int value) : what_(what), before_(what.exchange(value)) {}
  ~Pretend() { what_ = before_; }
  Pretend(const Pretend&) = delete;
  Pretend& operator=(const Pretend&) = delete;

 private:
  std::atomic<int>& what_;
  int before_;
};

// The exit status of a child by fork that runs f; -1 where it came to no end of its own.
int status_of_child(const std::function<int()>& f) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(f());
  int status = 0;
  for (int naps = 0; waitpid(child, &status, WNOHANG) == 0; ++naps) {
    if (naps == 1000) kill(child, SIGKILL);
    std::this_thread::sleep_for(milliseconds(10));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a message and a collective that would have had one tag do not meet") {
  const auto group = comm::mpi_group(MPI_COMM_WORLD);
  if (group.world() != 2) return;
  // Under one tag for both, this number and this tag were the same.
  while (group.sequence() < 100) group.barrier().wait();
  const Tensor arrived = filled(7079, 7), sum = filled(14159, 1);
  comm::Work receiving;
  if (group.rank() == 1) receiving = group.recv(arrived, 0, 38785);
  group.all_reduce(sum).wait();
  CHECK(sum.to_vector<float>() == std::vector<float>(14159, 2));
  if (group.rank() == 0) {
    group.send(filled(7079, 5), 1, 38785).wait();
  } else {
    receiving.wait();
    CHECK(arrived.to_vector<float>() == std::vector<float>(7079, 5));
  }
  group.barrier().wait();
}

TEST_CASE("where tags end at 65535, all tags of users differ, and no collective meets them") {
  const Pretend limit(below_mpi().highest_tag, 65535);
  const auto group = comm::mpi_group(MPI_COMM_WORLD);
  if (group.world() < 2) return;
  const std::vector<int> tags = {65535, 0, 32767, 1, 100, 65534};
  std::vector<Tensor> arrived;
  std::vector<comm::Work> works;
  for (const int tag : tags) {
    arrived.push_back(Tensor::zeros({3}));
    if (group.rank() == 1) works.push_back(group.recv(arrived.back(), 0, tag));
  }
  for (std::int64_t count = 1; count <= 300; ++count) {
    const Tensor sum = filled(count, 1);
    group.all_reduce(sum).wait();
    CHECK(sum.to_vector<float>() ==
          std::vector<float>(static_cast<std::size_t>(count), static_cast<float>(group.world())));
  }
  if (group.rank() == 0) {
    for (std::size_t i = tags.size(); i-- > 0;) {  // the last first
      works.push_back(group.send(filled(3, tags[i]), 1, tags[i]));
    }
  }
  for (comm::Work& work : works) work.wait();
  for (std::size_t i = 0; group.rank() == 1 && i < tags.size(); ++i) {
    CHECK(arrived[i].to_vector<float>() == std::vector<float>(3, static_cast<float>(tags[i])));
  }
  group.barrier().wait();
}

TEST_CASE("an MPI with too few tags is an error at the start") {
  const Pretend limit(below_mpi().highest_tag, 32767);
  const std::string error = error_of([] { (void)comm::mpi_group(MPI_COMM_WORLD); });
  MESSAGE("MPI_TAG_UB of 32767: " << error);
  CHECK(contains(error, "tags up to 32767 (MPI_TAG_UB), expected 65535 at least"));
}

TEST_CASE("what MPI may still write after a failed post is nobody else's memory") {
  const comm::ProcessGroup& everyone = testing::job().group();
  const auto group = comm::mpi_group(MPI_COMM_WORLD);
  if (group.world() != 2) return;
  everyone.barrier().wait();
  constexpr std::int64_t count = 300'000;
  const int peer = 1 - group.rank();
  const comm::Block all{0, count};
  // The receive first, so that it is MPI's when the send fails.
  const auto plan = std::make_shared<const comm::Plan>(comm::Program{
      .scratch = 0,
      .rounds = {{comm::recv(peer, comm::out(all)), comm::send(peer, comm::in(all))}}});
  std::string error;
  {
    const Tensor in = filled(count, 1), out = filled(count, 2);
    if (group.rank() == 0) below_mpi().failing_isend = 1;
    error = error_of(
        [&] { group.run(comm::Collective::all_reduce, plan, out.view(), in.view()).wait(); });
  }
  below_mpi().failing_isend = 0;
  CAPTURE(error);
  CHECK(contains(error, "MPI_Isend"));
  // The same size again, which an allocator would give the same memory.
  std::vector<Tensor> later;
  for (int i = 0; i < 8; ++i) later.push_back(filled(count, 7));
  for (int i = 0; i < 200; ++i) everyone.barrier().wait();  // the late message comes
  for (const Tensor& tensor : later) {
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < count; ++i) wrong += tensor.data<float>()[i] != 7;
    CHECK(wrong == 0);
  }
  everyone.barrier().wait();
}

TEST_CASE("two threads of two groups are never in MPI at once, groups' making included") {
  const Pretend level(below_mpi().level, MPI_THREAD_SERIALIZED);
  const auto one = comm::mpi_group(MPI_COMM_WORLD), two = comm::mpi_group(MPI_COMM_WORLD);
  below_mpi().overlaps = 0;
  std::string error = "nothing";
  std::thread other([&] {
    error = error_of([&] {
      for (int i = 0; i < 300; ++i) two.all_reduce(filled(100, 1)).wait();
    });
  });
  for (int i = 0; i < 30; ++i) {
    const auto part = one.split(one.rank() % 2);
    part.barrier().wait();
    if (i % 6 == 0) comm::mpi_group(MPI_COMM_WORLD).barrier().wait();
  }
  other.join();
  CHECK(error == "nothing");
  CHECK(below_mpi().overlaps == 0);
  testing::job().group().barrier().wait();
}

TEST_CASE("a thread that may not call MPI is told so, and nothing else happens") {
  const comm::ProcessGroup& everyone = testing::job().group();
  auto group = comm::mpi_group(MPI_COMM_WORLD);
  below_mpi().foreign = 0;
  const Tensor data = filled(5, 1);
  comm::Work work;
  if (group.rank() == 0) {
    work = group.all_reduce(data);
    std::vector<std::string> errors;
    std::thread other([&] {
      errors.push_back(error_of([&] { group.progress(); }));
      errors.push_back(error_of([&] { (void)work.test(); }));
      errors.push_back(error_of([&] { work.wait(); }));
      errors.push_back(error_of([&] { group.barrier().wait(); }));
      errors.push_back(error_of([&] { group.send(data, 1).wait(); }));
    });
    other.join();
    if (group.world() > 1) {
      for (const std::string& error : errors) {
        CAPTURE(error);
        CHECK(contains(error, "MPI was initialised for one thread, and this is another"));
      }
    }
  }
  everyone.barrier().wait();
  if (group.rank() != 0) work = group.all_reduce(data);
  work.wait();
  CHECK(data.to_vector<float>() == std::vector<float>(5, static_cast<float>(group.world())));
  CHECK(!group.poisoned());
  // The last to hold the group may be any thread.
  std::thread last([&] {
    work = {};
    group = {};
  });
  last.join();
  CHECK(below_mpi().foreign == 0);
  everyone.barrier().wait();
}

TEST_CASE("one question to MPI for all that is under way") {
  const auto group = comm::mpi_group(MPI_COMM_WORLD);
  if (group.world() < 2) return;
  constexpr int messages = 300;
  std::vector<comm::P2POp> ops;
  std::vector<Tensor> data;
  for (int i = 0; i < messages; ++i) {
    data.push_back(filled(4, group.rank() == 0 ? i : -1));
    ops.push_back({group.rank() == 0 ? comm::Direction::send : comm::Direction::recv, data.back(),
                   1 - group.rank(), i});
  }
  comm::Work receiving;
  if (group.rank() == 1) {
    receiving = group.batch_isend_irecv(ops);
    below_mpi().testsomes = 0;
    below_mpi().calls = 0;
    for (int i = 0; i < 10; ++i) group.progress();
    CHECK(below_mpi().testsomes >= 1);
    CHECK(below_mpi().testsomes <= 10);
    CHECK(below_mpi().calls <= 20);  // no question for each by another name
  }
  group.barrier().wait();
  if (group.rank() == 0) group.batch_isend_irecv(ops).wait();
  receiving.wait();
  for (int i = 0; group.rank() == 1 && i < messages; ++i) {
    CHECK(data[static_cast<std::size_t>(i)].to_vector<float>() ==
          std::vector<float>(4, static_cast<float>(i)));
  }
  group.barrier().wait();
}

TEST_CASE("a rank that fails before a sub-group is made leaves nobody waiting for ever") {
  const comm::ProcessGroup& everyone = testing::job().group();
  const bool last = everyone.rank() == everyone.world() - 1;
  if (everyone.world() < 2) return;
  for (const bool says_so : {true, false}) {
    const auto group = comm::mpi_group(MPI_COMM_WORLD, {.deadline = milliseconds(2000)});
    everyone.barrier().wait();
    if (last) below_mpi().failing_comm_group = 1;
    const std::string error = error_of([&] { (void)group.split(0); });
    below_mpi().failing_comm_group = 0;
    if (last && says_so) group.poison("rank 7 is on fire");
    CAPTURE(error);
    if (last) {
      CHECK(contains(error, "MPI_Comm_group"));
    } else if (says_so) {
      CHECK(contains(error, "rank 7 is on fire"));
    } else {
      CHECK(contains(error, "waited 2 s (PEAL_TIMEOUT) for the other ranks"));
      group.poison(error);
    }
    everyone.barrier().wait();
  }
}

TEST_CASE("a rank that lets its group go waits for nobody who keeps it") {
  auto group = comm::mpi_group(MPI_COMM_WORLD);
  if (testing::job().rank() == 0) group = {};  // frees its communicators
  testing::job().group().barrier().wait();
}

TEST_CASE("a child by fork leaves its parent's group alone when it ends, well or not") {
  for (const bool throws : {false, true}) {
    auto group = comm::mpi_group(MPI_COMM_WORLD);
    if (testing::job().rank() == 0) {
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        below_mpi().calls = 0;
        try {
          const auto inherited = std::move(group);
          if (throws) throw Error("the child's own trouble");
        } catch (const Error&) {
        }
        _exit(std::min(below_mpi().calls.load(), 100));
      }
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      CHECK(WIFEXITED(status));
      CHECK(WEXITSTATUS(status) == 0);  // calls of MPI
    }
    testing::job().group().barrier().wait();
    CHECK(!group.poisoned());
    const Tensor data = filled(5, 1);
    group.all_reduce(data).wait();
    CHECK(data.to_vector<float>() == std::vector<float>(5, static_cast<float>(group.world())));
  }
}

TEST_CASE("a child by fork has no group: what it calls is an error, and touches nothing") {
  const comm::ProcessGroup& everyone = testing::job().group();
  const auto group = comm::mpi_group(MPI_COMM_WORLD);
  if (group.world() < 2) return;
  comm::Control& control = comm::body_of(group).lane->control();
  const Tensor data = filled(5, 1), message = filled(3, 4);
  if (group.rank() == 0) {
    comm::Work work = group.recv(message, 1, 7);
    {
      auto busy = group.busy();
      const int wrong = status_of_child([&] {
        below_mpi().calls = 0;
        int calls = 0;
        const auto refused = [&](const std::function<void()>& f) {
          ++calls;
          return contains(error_of(f), "a child by fork has no group");
        };
        int right = refused([&] { group.barrier().wait(); });
        right += refused([&] { group.all_reduce(data).wait(); });
        right += refused([&] { group.send(data, 1).wait(); });
        right += refused([&] { (void)group.all_gather_object("child"); });
        right += refused([&] { (void)group.split(0); });
        right += refused([&] { (void)group.busy(); });
        right += refused([&] { group.check(); });
        right += refused([&] { group.progress(); });
        right += contains(error_of([&] { work.wait(); }), "a child by fork");
        right += contains(error_of([&] { (void)work.test(); }), "a child by fork");
        group.write_trace();
        busy.reset();
        return calls + 2 - right + 10 * std::min(below_mpi().calls.load(), 10);
      });
      CHECK(wrong == 0);
      CHECK(control.anyone_works());  // the parent's word
    }
    CHECK(!control.anyone_works());
    everyone.barrier().wait();
    work.wait();
    CHECK(message.to_vector<float>() == std::vector<float>(3, 9));
  } else {
    everyone.barrier().wait();
    if (group.rank() == 1) group.send(filled(3, 9), 0, 7).wait();
  }
  group.all_reduce(data).wait();
  CHECK(data.to_vector<float>() == std::vector<float>(5, static_cast<float>(group.world())));
  everyone.barrier().wait();
}

TEST_CASE("a child by fork that leaves a program, well or not, neither meets nor traces") {
  const auto folder =
      std::filesystem::temp_directory_path() /
      concat("peal-fork-", testing::job().group().broadcast_object(concat(getpid())));
  setenv("PEAL_TRACE", folder.c_str(), 1);
  for (const bool throws : {false, true}) {
    CAPTURE(throws);
    bool child = false;
    int status = 0;
    const int ended = launch::run_main([&](launch::Job& job) {
      if (job.rank() != 0) return;
      const pid_t made = fork();
      REQUIRE(made >= 0);
      if (made == 0) {
        child = true;
        below_mpi().calls = 0;
        if (throws) throw Error("the child's own trouble");
        return;
      }
      for (int naps = 0; waitpid(made, &status, WNOHANG) == 0; ++naps) {
        if (naps == 1000) kill(made, SIGKILL);
        std::this_thread::sleep_for(milliseconds(10));
      }
    });
    if (child) _exit(ended != 0 ? 99 : std::min(below_mpi().calls.load(), 90));
    CHECK(ended == 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == (throws && testing::job().rank() == 0 ? 1 : 0));
  }
  unsetenv("PEAL_TRACE");
  testing::job().group().barrier().wait();
  if (testing::job().rank() == 0) std::filesystem::remove_all(folder);
}

TEST_CASE("what fails while ranks exchange texts is no want of shared memory") {
  const comm::ProcessGroup& everyone = testing::job().group();
  const bool last = everyone.rank() == everyone.world() - 1;
  if (everyone.world() < 2) return;
  if (last) below_mpi().failing_iallgather = 2;  // the board's first
  const std::string error =
      error_of([] { (void)comm::mpi_group(MPI_COMM_WORLD, {.deadline = milliseconds(2000)}); });
  below_mpi().failing_iallgather = 0;
  CAPTURE(error);
  CHECK(contains(error, last ? "MPI_Iallgather" : "exchanging texts: waited 2 s (PEAL_TIMEOUT)"));
  everyone.barrier().wait();
}

TEST_CASE("a rank that does not come to the start is found by the deadline") {
  const comm::ProcessGroup& everyone = testing::job().group();
  if (everyone.world() < 2) return;
  MPI_Comm own = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  if (everyone.rank() == 0) {
    const std::string error =
        error_of([&] { (void)comm::mpi_group(own, {.deadline = milliseconds(2000)}); });
    CAPTURE(error);
    CHECK(contains(error, "rank 0, making a group: waited 2 s (PEAL_TIMEOUT)"));
  }
  everyone.barrier().wait();
}
