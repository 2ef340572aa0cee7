// SPDX-License-Identifier: Apache-2.0
// Groups of processes that a store brings together, without MPI.
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
#include "process_ranks.h"

using namespace peal;
using namespace peal::comm;
using namespace peal::testing;

namespace {

const ProcessGroup::Options quick{.deadline = std::chrono::seconds(60)};

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

TEST_CASE("a rank that dies before all are joined is named at once by those of its node") {
  // Once all have told where they listen, rank 1 dies, and rank 2, of another node, stands still.
  class Leaving : public Rendezvous {
   public:
    explicit Leaving(Rendezvous& ranks) : ranks_(ranks) {}
    int rank() const override { return ranks_.rank(); }
    int world() const override { return ranks_.world(); }
    std::vector<std::string> exchange(const std::string& mine) override {
      auto said = ranks_.exchange(mine);
      const bool listens = mine.find("net:[") != mine.npos;
      if (listens && rank() == 1) ::raise(SIGKILL);
      if (listens && rank() == 2) ::pause();
      return said;
    }

   private:
    Rendezvous& ranks_;
  };
  const auto before = segments();
  const Folder folder;
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.push_back(in_process([&, rank] {
      ::setenv("PEAL_NODE", concat(rank / 2).c_str(), 1);
      const auto ranks = files_in(folder.path / "store")(rank, 3);
      Leaving leaving(*ranks);
      std::ofstream(folder.path / concat("rank ", rank)) << error_of([&] {
        static_cast<void>(processes_group(leaving, {.deadline = std::chrono::seconds(20)}));
      });
    }));
  }
  int status = 0;
  for (const int rank : {0, 1, 2}) {
    if (rank == 2) ::kill(children[2], SIGKILL);
    REQUIRE(waitpid(children[static_cast<std::size_t>(rank)], &status, 0) > 0);
  }
  check_has(content_of(folder.path / "rank 0"),
            concat("rank 1 (process ", children[1], ") has died"));
  check_nothing_remains(before);
}

TEST_CASE("between nodes every operation, type and reduction is exact, by TCP") {
  const auto before = segments();
  for (const int on_a_node : {1, 2}) {
    for (const int world : {3, 5}) {
      CAPTURE(world);
      Processes ranks(
          world, quick,
          [&](const ProcessGroup& group) {
            PEAL_CHECK(group.transport() == "tcp", "another transport");
            PEAL_CHECK(group.nodes().node.back() == (world - 1) / on_a_node, "other nodes");
            const comm::testing::Tally tally = comm::testing::check_collectives(group);
            PEAL_CHECK(tally.cases > 2000 && tally.compared > 100000, "too few cases");
            const auto back = group.new_group({world - 1, 0});
            if (!back) return;
            const Tensor x = Tensor::from(std::vector<float>{1}, {1});
            back.all_reduce(x).wait();
            PEAL_CHECK(x.item<float>() == 2, "the sum of two of them: ", x.item<float>());
          },
          on_a_node);
      check_well(ranks.ends());
    }
  }
  check_nothing_remains(before);
}

TEST_CASE("a process that dies on another node is named, and so is an error there") {
  const auto before = segments();
  for (const int microseconds : {50, 3000, 40'000}) {
    Processes ranks(
        4, quick,
        [&](const ProcessGroup& group) {
          const Tensor few = Tensor::zeros({16}), many = Tensor::zeros({300'000});
          group.barrier().wait();
          if (group.rank() == 3) ualarm(static_cast<useconds_t>(microseconds), 0);
          for (;;) {
            for (const Tensor& data : {few, many}) group.all_reduce(data).wait();
          }
        },
        2);
    const auto ends = ranks.ends();
    CHECK(ends[3] == concat("signal ", SIGALRM));
    for (const std::size_t rank : {0, 1, 2}) {
      const bool seen =
          contains(ends[rank], concat("rank 3 (process ", ranks.pid(3), ") has died"));
      const bool cut = contains(ends[rank], "rank 3 (") && contains(ends[rank], "it is gone");
      CHECK_MESSAGE((seen || cut), ends[rank]);
    }
  }
  Processes failing(
      4, quick,
      [](const ProcessGroup& group) {
        if (group.rank() == 2) {
          const std::string message = "[rank 2] no more samples";
          group.poison(message);
          throw Error(message);
        }
        group.barrier().wait();
      },
      2);
  for (const std::string& end : failing.ends()) check_has(end, "[rank 2] no more samples");
  check_nothing_remains(before);
}

TEST_CASE("after an abort nothing is written into what the group had in flight") {
  int asked[2], sent[2];
  REQUIRE((pipe(asked) == 0 && pipe(sent) == 0));
  Processes ranks(2, quick, [&](const ProcessGroup& group) {
    char byte = 0;
    const ProcessGroup part = group.new_group({0, 1});
    const Tensor data = Tensor::zeros({4}), other = Tensor::zeros({4});
    if (group.rank() == 1) {
      PEAL_CHECK(read(asked[0], &byte, 1) == 1, "no pipe");
      group.send(Tensor::from(std::vector<float>(4, 7), {4}), 0).wait();
      PEAL_CHECK(write(sent[1], &byte, 1) == 1, "no pipe");
      while (!group.poisoned()) usleep(1000);
      fail("rank 0 has given up");
    }
    const Work work = group.recv(data, 1), still = part.recv(other, 1);
    PEAL_CHECK(write(asked[1], &byte, 1) == 1 && read(sent[0], &byte, 1) == 1, "no pipe");
    group.abort("rank 0 gives up");  // the message is there, and not yet looked at
    while (!still.test()) usleep(1000);
    PEAL_CHECK(data.to_vector<float>() == std::vector<float>(4, 0), "written after the abort");
    work.wait();
  });
  const auto ends = ranks.ends();
  CHECK(ends[0] == "rank 0 gives up");
  for (const int end : {asked[0], asked[1], sent[0], sent[1]}) close(end);
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
