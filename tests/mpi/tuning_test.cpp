// SPDX-License-Identifier: Apache-2.0
// Ranks of which each has a tuning file of its own choose by rank 0's.
#include <peal/comm/group/tuning.h>
#include <peal/comm/start/mpi.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include "mpi_main.h"

using namespace peal;
using namespace peal::comm;
namespace fs = std::filesystem;

namespace {

// Where the ranks choose differently they do not meet, and the deadline ends the test.
std::string algorithm(const ProcessGroup& group) {
  const Tensor data = Tensor::from(std::vector<float>(1000, 1), {1000});
  const Work work = group.all_reduce(data);
  work.wait();
  CHECK(data.to_vector<float>() == std::vector<float>(1000, static_cast<float>(group.world())));
  return std::string(work.algorithm());
}

}  // namespace

TEST_CASE("rank 0's tuning file counts, in sub-groups too") {
  const ProcessGroup& everyone = testing::job().group();
  std::string name = (fs::temp_directory_path() / "peal_tuning_XXXXXX").string();
  REQUIRE(mkdtemp(name.data()) != nullptr);
  const fs::path folder = name;
  const auto file = [&](const std::string& algorithm) {
    Tuning tuning{this_machine(), {}};
    for (const int ranks : {1, 2, 4}) {
      for (const bool crowded : {false, true}) {
        tuning.put({"mpi", ranks, 1, Rules("all_reduce=" + algorithm, "test"), {}, crowded});
      }
    }
    save_tuning(folder / algorithm, tuning);
    return (folder / algorithm).string();
  };
  ProcessGroup::Options options;
  options.tuning = file(everyone.rank() == 0 ? "ring" : "circulant");
  const auto check = [&](const std::string& expected) {
    const ProcessGroup group = mpi_group(MPI_COMM_WORLD, options);
    CHECK(algorithm(group) == expected);
    const ProcessGroup part = group.split(group.rank() == 0 ? 1 : 0);
    if (part.world() > 1) CHECK(algorithm(part) == expected);
  };
  check("ring");
  if (everyone.rank() == 0) options.tuning = (folder / "none").string();
  check("slots");
  if (everyone.rank() == 0) options.tuning.clear();
  check("slots");
  options.tuning = everyone.rank() == 0 ? file("ring") : "";
  check("ring");
  fs::remove_all(folder);
}
