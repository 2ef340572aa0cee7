// SPDX-License-Identifier: Apache-2.0
// Groups of processes that a store brings together, without MPI.
#include <peal/comm/start/processes.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/segments.h>
#include "collective_cases.h"
#include "store_ranks.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;

namespace {

const ProcessGroup::Options quick{.deadline = std::chrono::seconds(60)};

// f on a process for each rank. One that ends with an error says it in a file.
class Processes {
 public:
  Processes(int world, const ProcessGroup::Options& options,
            const std::function<void(const ProcessGroup&)>& f) {
    for (int rank = 0; rank < world; ++rank) {
      children_.push_back(in_process([&, rank] {
        const std::string error = error_of([&] {
          const auto ranks = files_in(folder_.path / "store")(rank, world);
          {
            const ProcessGroup group = processes_group(*ranks, options);
            f(group);
            group.barrier().wait();
          }
          ranks->exchange("the end");
        });
        std::ofstream(file(rank)) << error;
        PEAL_CHECK(error == "nothing", error);
      }));
    }
  }
  pid_t pid(int rank) const { return children_[static_cast<std::size_t>(rank)]; }
  // "nothing", an error, or how the process ended.
  std::vector<std::string> ends() {
    std::vector<std::string> said;
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      int status = 0;
      REQUIRE(waitpid(children_[rank], &status, 0) == children_[rank]);
      said.push_back(WIFSIGNALED(status) ? concat("signal ", WTERMSIG(status))
                                         : content_of(file(static_cast<int>(rank))));
    }
    return said;
  }

 private:
  std::string file(int rank) const { return folder_.path / concat("rank ", rank); }
  Folder folder_;
  std::vector<pid_t> children_;
};

void check_well(const std::vector<std::string>& ends) {
  for (const std::string& end : ends) CHECK(end == "nothing");
}

}  // namespace

TEST_CASE("every operation, type and reduction is exact at 1 to 5 processes") {
  const auto before = segments();
  for (const bool shared : {true, false}) {
    ProcessGroup::Options options = quick;
    options.shared_memory = shared;
    for (int world = 1; world <= 5; ++world) {
      CAPTURE(world);
      Processes ranks(world, options, [&](const ProcessGroup& group) {
        PEAL_CHECK(group.world() == world && group.transport() == "shm", "another group");
        const comm::testing::Tally tally = comm::testing::check_collectives(group);
        PEAL_CHECK(tally.cases > 2000 && tally.compared > 100000, "too few cases");
        const Tensor shared_data = group.allocate({1000});
        for (int i = 0; i < 1000; ++i) shared_data.data<float>()[i] = float(i * (group.rank() + 1));
        const Work work = group.all_reduce(shared_data);
        work.wait();
        const auto sum = static_cast<float>(world * (world + 1) / 2);
        for (int i = 0; i < 1000; ++i) {
          PEAL_CHECK(shared_data.data<float>()[i] == float(i) * sum, "element ", i);
        }
      });
      check_well(ranks.ends());
    }
  }
  check_nothing_remains(before);
}

TEST_CASE("a process that dies is named by the others, wherever it was") {
  const auto before = segments();
  for (const bool shared : {true, false}) {
    ProcessGroup::Options options = quick;
    options.shared_memory = shared;
    for (const int microseconds : {50, 3000, 40'000}) {
      Processes ranks(3, options, [&](const ProcessGroup& group) {
        const Tensor few = Tensor::zeros({16}), many = Tensor::zeros({300'000});
        group.barrier().wait();
        if (group.rank() == 1) ualarm(static_cast<useconds_t>(microseconds), 0);
        for (;;) {
          for (const Tensor& data : {few, many}) group.all_reduce(data).wait();
        }
      });
      const auto ends = ranks.ends();
      CHECK(ends[1] == concat("signal ", SIGALRM));
      for (const int rank : {0, 2}) {
        check_has(ends[static_cast<std::size_t>(rank)],
                  concat("rank 1 (process ", ranks.pid(1), ") has died"));
      }
    }
  }
  check_nothing_remains(before);
}

TEST_CASE("an error of one process reaches all, and so do calls that differ") {
  Processes failing(3, quick, [](const ProcessGroup& group) {
    if (group.rank() == 2) {
      const std::string message = "[rank 2] no more samples";
      group.poison(message);
      throw Error(message);
    }
    group.barrier().wait();
  });
  for (const std::string& end : failing.ends()) check_has(end, "[rank 2] no more samples");
  Processes differing(2, quick, [](const ProcessGroup& group) {
    group.all_reduce(Tensor::zeros({group.rank() == 0 ? 255 : 256})).wait();
    group.barrier().wait();
  });
  for (const std::string& end : differing.ends()) {
    check_has(end, "(sum of 255 f32)");
    check_has(end, "(sum of 256 f32)");
  }
}

TEST_CASE("a rank that does not come is found by the deadline, and named") {
  ProcessGroup::Options options = quick;
  options.deadline = milliseconds(3000);
  Processes ranks(2, options, [](const ProcessGroup& group) {
    if (group.rank() == 1) {
      while (!group.poisoned()) std::this_thread::sleep_for(milliseconds(5));
      return;
    }
    group.recv(Tensor::zeros({4}), 1, 3).wait();
  });
  const auto ends = ranks.ends();
  check_has(ends[0], "PEAL_TIMEOUT");
  check_has(ends[0], "16 B from rank 1");
}

TEST_CASE("processes that pretend to be on several nodes are told so") {
  const Folder folder;
  std::vector<pid_t> children;
  for (int rank = 0; rank < 2; ++rank) {
    children.push_back(in_process([&, rank] {
      ::setenv("PEAL_NODE", rank == 0 ? "one" : "two", 1);
      const auto ranks = files_in(folder.path / "store")(rank, 2);
      const std::string error = error_of([&] { (void)processes_group(*ranks, quick); });
      PEAL_CHECK(contains(error, "rank 1 is on another node than rank 0"), error);
      ranks->exchange("the end");
    }));
  }
  for (const pid_t child : children) CHECK(ended_well(child));
}

TEST_CASE("a child by fork of a rank has no group, and another world may follow in one process") {
  Processes ranks(2, quick, [](const ProcessGroup& group) {
    const pid_t child = fork();
    if (child == 0) {
      const std::string error = error_of([&] { group.barrier().wait(); });
      _exit(contains(error, "a child by fork has no group") ? 0 : 1);
    }
    int status = 0;
    PEAL_CHECK(waitpid(child, &status, 0) == child && status == 0, "the child's status ", status);
    const auto again = group.new_group({1, 0});
    const Tensor x = Tensor::from(std::vector<float>{1}, {1});
    again.all_reduce(x).wait();
    group.all_reduce(x).wait();
    PEAL_CHECK(x.item<float>() == 4, "sums after the child: ", x.item<float>());
  });
  check_well(ranks.ends());
}
