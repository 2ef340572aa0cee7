// SPDX-License-Identifier: Apache-2.0
// Ranks on nodes: as they are, and as PEAL_NODE says.
#include <peal/autograd/intra_op.h>
#include <peal/comm/start/mpi.h>
#include <peal/launch/affinity.h>
#include <peal/launch/job.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include "mpi_main.h"
#include "pretend.h"

using namespace peal;
using peal::testing::Pretend;

namespace {

const comm::ProcessGroup& everyone() { return testing::job().group(); }

void check_sums(const comm::ProcessGroup& group) {
  for (const std::int64_t count : {1, 5, 1000, 100'003}) {
    const Tensor data = Tensor::zeros({count});
    for (std::int64_t i = 0; i < count; ++i) {
      data.data<float>()[i] = static_cast<float>((i % 97) * (group.rank() + 1));
    }
    group.all_reduce(data).wait();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto sum = static_cast<float>((i % 97) * group.world() * (group.world() + 1) / 2);
      wrong += data.data<float>()[i] != sum ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("ranks that mpirun starts here are on one node") {
  const std::vector<int> one(static_cast<std::size_t>(everyone().world()), 0);
  CHECK(everyone().nodes().node == one);
}

TEST_CASE("where the launcher says nothing of nodes, a Job counts the ranks of its own") {
  const Pretend pretend([](int rank) { return rank % 2; });
  const char* const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                               "OMP_NUM_THREADS"};
  std::vector<std::string> kept;
  for (const char* name : names) {
    const char* const value = std::getenv(name);
    kept.emplace_back(value == nullptr ? "" : value);
    unsetenv(name);
  }
  const int threads = num_threads(), world = everyone().world();
  {
    const launch::Job job;
    CHECK(job.where().local_rank == job.rank() / 2);
    CHECK(job.where().local_world == (world + 1 - job.rank() % 2) / 2);
    const launch::Cores here = launch::cores();
    CHECK(num_threads() ==
          launch::intra_op_threads(here.allowed, here.machine, job.where().local_world));
  }
  set_num_threads(threads);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i].empty()) setenv(names[i], kept[i].c_str(), 1);
  }
  everyone().barrier().wait();
}

TEST_CASE("hierarchical sums are right on pretended nodes, and in sub-groups") {
  const std::vector<std::function<int(int)>> ways = {
      [](int rank) { return rank / 2; }, [](int rank) { return rank % 2; },
      [](int rank) { return rank; }, [](int rank) { return rank == 0 ? 0 : 1; }};
  for (const auto& way : ways) {
    const Pretend pretend(way);
    CAPTURE(pretend.nodes);
    const auto group = comm::mpi_group(MPI_COMM_WORLD, {.algorithms = "all_reduce=hierarchical"});
    CHECK(group.nodes().node == pretend.nodes);
    check_sums(group);
    const auto part = group.split(group.rank() % 2, -group.rank());
    std::vector<int> nodes;
    for (int r = group.world() - 1; r >= 0; --r) {
      if (r % 2 == group.rank() % 2) nodes.push_back(way(r));
    }
    CHECK(part.nodes().node == nodes);
    check_sums(part);
  }
  everyone().barrier().wait();
}

// MPI_Barrier does nothing for peal's rounds; rank 0 comes there with its result alone.
TEST_CASE("between nodes collectives go on while ranks do something else") {
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level != MPI_THREAD_MULTIPLE) {
    MESSAGE("SKIPPED: this MPI gives no MPI_THREAD_MULTIPLE");
    return;
  }
  const Pretend pretend([](int rank) { return rank; });
  const auto group = comm::mpi_group(MPI_COMM_WORLD, {.algorithms = "all_reduce=ring"});
  for (int i = 0; i < 5; ++i) {
    const Tensor data = Tensor::from(std::vector<float>(100'000, 1), {100'000});
    const comm::Work work = group.all_reduce(data);
    if (group.rank() == 0) work.wait();
    MPI_Barrier(MPI_COMM_WORLD);
    work.wait();
    CHECK(data.to_vector<float>() ==
          std::vector<float>(100'000, static_cast<float>(group.world())));
  }
}

TEST_CASE("ranks of a node have a board in common, those of others do not") {
  const Pretend pretend([](int rank) { return rank / 2; });
  const auto group = comm::mpi_group(MPI_COMM_WORLD);
  everyone().barrier().wait();
  if (group.rank() == 0) group.poison("rank 0 is on fire");
  everyone().barrier().wait();
  CHECK(group.poisoned() == (group.rank() / 2 == 0));
  everyone().barrier().wait();
}
