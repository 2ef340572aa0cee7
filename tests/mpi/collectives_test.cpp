// SPDX-License-Identifier: Apache-2.0
// The same cases as over threads, over MPI.
#include <vector>

#include <doctest/doctest.h>
#include "collective_cases.h"
#include "mpi_main.h"

using namespace peal;

TEST_CASE("every operation, type and reduction is exact") {
  comm::ProcessGroup& group = testing::job().group();
  const std::int64_t compared = comm::testing::check_collectives(group);
  CHECK(compared > 100000);
  if (group.rank() == 0)
    MESSAGE(group.transport() << ", world " << group.world() << ": " << compared << " compared");
}

TEST_CASE("a large message keeps its place") {
  comm::ProcessGroup& group = testing::job().group();
  const std::int64_t count = 3'000'001;
  const Tensor data = Tensor::empty({count});
  for (std::int64_t i = 0; i < count; ++i)
    data.data<float>()[i] = static_cast<float>((i % 1000) * (group.rank() + 1));
  group.all_reduce(data).wait();
  const float ranks = static_cast<float>(group.world() * (group.world() + 1) / 2);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < count; ++i)
    wrong += data.data<float>()[i] != static_cast<float>(i % 1000) * ranks;
  CHECK(wrong == 0);
}

TEST_CASE("rank 0 goes first, and its failure is everyone's") {
  comm::ProcessGroup& group = testing::job().group();
  int calls = 0;
  launch::rank0_first(group, [&] { ++calls; });
  CHECK(calls == 1);
  CHECK_THROWS_WITH(launch::rank0_first(group,
                                        [&] {
                                          if (group.rank() == 0) throw Error("no such host");
                                        }),
                    doctest::Contains("no such host"));
  group.barrier().wait();
}
