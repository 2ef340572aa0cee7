// SPDX-License-Identifier: Apache-2.0
// The threads an op gets, and what is said of a rank's binding.
#include <doctest/doctest.h>
#include <peal/launch/affinity.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace peal;
using namespace peal::launch;

namespace {

Cores bound_to(int allowed, int machine) {
  Cores cores{{}, allowed, machine};
  for (int cpu = 0; cpu < allowed; ++cpu) cores.cpus.push_back(cpu);
  return cores;
}

// So many cores of a cpu each.
std::vector<std::vector<int>> machine(int cores) {
  std::vector<std::vector<int>> all;
  for (int cpu = 0; cpu < cores; ++cpu) all.push_back({cpu});
  return all;
}

bool mentions(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an op gets the rank's share, and no more than it may use") {
  CHECK(intra_op_threads(64, 64, 1) == 64);
  CHECK(intra_op_threads(64, 64, 2) == 32);  // unbound: half each
  CHECK(intra_op_threads(32, 64, 2) == 32);  // bound to its share
  CHECK(intra_op_threads(1, 64, 2) == 1);    // what mpirun -n 2 does
  CHECK(intra_op_threads(2, 2, 3) == 1);     // more ranks than cores
  CHECK(intra_op_threads(64, 4, 1) == 4);    // a container's quota
  CHECK(intra_op_threads(0, 0, 0) == 1);
}

TEST_CASE("ranks get even shares of the cores, whole and apart") {
  const std::vector<std::vector<int>> cores{{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  for (const auto& nodes : {std::vector<std::vector<int>>{}, {{0, 1, 2, 3, 4, 5, 6, 7}}}) {
    CHECK(even_share(cores, nodes, 0, 2) == std::vector<int>{0, 1, 4, 5});
    CHECK(even_share(cores, nodes, 1, 2) == std::vector<int>{2, 3, 6, 7});
    CHECK(even_share(cores, nodes, 2, 3) == std::vector<int>{2, 6});
    CHECK(even_share(cores, nodes, 3, 4) == std::vector<int>{3, 7});
    CHECK(even_share(cores, nodes, 0, 1).empty());  // all
    CHECK(even_share(cores, nodes, 4, 5).empty());  // less than one
  }
}

TEST_CASE("a rank's share lies in one NUMA node where it fits") {
  // Two nodes whose cpus take turns, as many machines of two sockets number them.
  const std::vector<std::vector<int>> turns{{0, 2, 4, 6}, {1, 3, 5, 7}};
  const auto eight = machine(8);
  CHECK(even_share(eight, turns, 0, 2) == std::vector<int>{0, 2, 4, 6});
  CHECK(even_share(eight, turns, 1, 2) == std::vector<int>{1, 3, 5, 7});
  CHECK(even_share(eight, turns, 1, 4) == std::vector<int>{4, 6});
  CHECK(even_share(eight, turns, 2, 4) == std::vector<int>{1, 3});
  // Shares of two for three ranks: two fit into the first node, one into the second.
  CHECK(even_share(eight, turns, 1, 3) == std::vector<int>{4, 6});
  CHECK(even_share(eight, turns, 2, 3) == std::vector<int>{1, 3});
  // Shares of three for four ranks of 2 x 7 cores: four whole ones, and nobody gets what is left.
  const std::vector<std::vector<int>> blocks{{0, 1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12, 13}};
  CHECK(even_share(machine(14), blocks, 1, 4) == std::vector<int>{3, 4, 5});
  CHECK(even_share(machine(14), blocks, 2, 4) == std::vector<int>{7, 8, 9});
  CHECK(even_share(machine(14), blocks, 3, 4) == std::vector<int>{10, 11, 12});
  // Shares of four for three ranks: one each, and the third has what both have left.
  CHECK(even_share(machine(14), blocks, 0, 3) == std::vector<int>{0, 1, 2, 3});
  CHECK(even_share(machine(14), blocks, 1, 3) == std::vector<int>{7, 8, 9, 10});
  CHECK(even_share(machine(14), blocks, 2, 3) == std::vector<int>{4, 5, 6, 11});
  // The process may use some of the second node alone; and cores of no node count as the last.
  CHECK(even_share({{7}, {8}, {10}, {12}}, blocks, 1, 2) == std::vector<int>{10, 12});
  CHECK(even_share({{0}, {7}, {8}, {99}}, blocks, 0, 2) == std::vector<int>{7, 8});
  CHECK(even_share({{0}, {7}, {8}, {99}}, blocks, 1, 2) == std::vector<int>{0, 99});
}

TEST_CASE("shares are even, and nobody's twice, on every machine") {
  for (int size = 1; size <= 24; ++size) {
    for (int nodes = 1; nodes <= 4; ++nodes) {
      std::vector<std::vector<int>> by_node(static_cast<std::size_t>(nodes));
      for (int cpu = 0; cpu < size; ++cpu)
        by_node[static_cast<std::size_t>(cpu * 7 % size % nodes)].push_back(cpu);
      for (int ranks = 2; ranks <= size; ++ranks) {
        CAPTURE(size);
        CAPTURE(nodes);
        CAPTURE(ranks);
        std::set<int> taken;
        int within = 0, fitting = 0;
        for (const auto& node : by_node) fitting += static_cast<int>(node.size()) / (size / ranks);
        for (int rank = 0; rank < ranks; ++rank) {
          const auto share = even_share(machine(size), by_node, rank, ranks);
          CHECK(share.size() == static_cast<std::size_t>(size / ranks));
          taken.insert(share.begin(), share.end());
          within += std::ranges::any_of(
              by_node, [&](const auto& node) { return std::ranges::includes(node, share); });
        }
        CHECK(taken.size() == static_cast<std::size_t>(ranks * (size / ranks)));
        CHECK(within >= std::min(ranks, fitting));
      }
    }
  }
}

TEST_CASE("NUMA nodes are read as the kernel lists them") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("peal-numa-" + std::to_string(::getpid()));
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  CHECK(cpus_by_numa_node(folder).empty());  // a kernel without NUMA
  write("online", "0-1,8\n");
  write("node0/cpulist", "0-1,4-5\n");
  write("node1/cpulist", "\n");  // memory alone
  write("node8/cpulist", "2-3,6-7\n");
  CHECK(cpus_by_numa_node(folder) == std::vector<std::vector<int>>{{0, 1, 4, 5}, {2, 3, 6, 7}});
  std::filesystem::remove_all(folder);
  for (const auto& node : cpus_by_numa_node()) CHECK(!node.empty());  // this machine
}

TEST_CASE("cpus are listed as the kernel does") {
  CHECK(cpu_list({}) == "");
  CHECK(cpu_list({5}) == "5");
  CHECK(cpu_list({0, 1, 2, 3, 8, 10, 11}) == "0-3,8,10-11");
  for (const std::vector<int>& cpus :
       {std::vector<int>{}, {5}, {0, 1, 2, 3, 8, 10, 11}, {127, 128}}) {
    CHECK(parse_cpu_list(cpu_list(cpus)) == cpus);
  }
  for (const char* wrong : {"x", "1,,2", "1-", "-3", "1;2"}) {
    CHECK_THROWS_WITH((void)parse_cpu_list(wrong), doctest::Contains("a list of cpus as 0-3,8"));
  }
}

TEST_CASE("ranks are crowded where they may not each keep a cpu busy") {
  constexpr int none = std::numeric_limits<int>::max();
  const std::vector<int> eight = {0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(!crowded({eight, eight}, none));
  CHECK(crowded(std::vector<std::vector<int>>(9, eight), none));
  CHECK(crowded({eight, eight, eight}, 2));  // 2 cpus' time of 8
  CHECK(crowded({{0}, {0}}, none));          // both bound to one cpu of eight
  CHECK(!crowded({{0}, {1}}, none));
  CHECK(crowded({{0}, {0}, eight}, none));   // two of three are
  CHECK(crowded({{0, 1}, {1}, {0}}, none));  // three on two
  CHECK(!crowded({{0, 1}, {1, 2}, {0, 2}}, none));
  CHECK(!crowded({{}, {}, {}}, none));  // who knows
  CHECK(!crowded({}, none));
}

TEST_CASE("ranks get shares of the cores beside their GPUs") {
  const auto eight = machine(8);
  // Two GPUs on each half: whole halves, shared by those that have one list.
  CHECK(share_near(eight, "0-3", 0, 2) == std::vector<int>{0, 1});
  CHECK(share_near(eight, "0-3", 1, 2) == std::vector<int>{2, 3});
  CHECK(share_near(eight, "4-7", 1, 2) == std::vector<int>{6, 7});
  CHECK(share_near(eight, "4-7", 0, 1) == std::vector<int>{4, 5, 6, 7});
  // Hardware threads of a core stay together, and what the process may not use is nobody's.
  CHECK(share_near({{0, 4}, {1, 5}, {2, 6}}, "0-1,4-5", 1, 2) == std::vector<int>{1, 5});
  CHECK(share_near({{0, 4}, {1, 5}, {2, 6}}, "0,2-4,6-7", 0, 1) == std::vector<int>{0, 2, 4, 6});
  // Where all cores are near, ranks share them still; one alone has nothing to gain.
  CHECK(share_near(eight, "0-7", 1, 2) == std::vector<int>{4, 5, 6, 7});
  CHECK(share_near(eight, "0-7", 0, 1).empty());
  CHECK(share_near(eight, "", 0, 1).empty());
  CHECK(share_near(eight, "64-95", 0, 1).empty());
  CHECK(share_near(eight, "0-1", 2, 3).empty());  // more ranks than cores
  CHECK(local_cpu_list("").empty());
  CHECK(local_cpu_list("0000:no:such.device").empty());
}

TEST_CASE("a rank that is to be left unbound is told from one that nobody placed") {
  const char* said = std::getenv("PEAL_BIND_TO");
  const std::string before = said == nullptr ? "" : said;
  unsetenv("PEAL_BIND_TO");
  CHECK(is_placed() == (allowed_cpus() != allowed_cpus(1)));
  setenv("PEAL_BIND_TO", "none", 1);
  CHECK(is_placed());
  if (before.empty()) {
    unsetenv("PEAL_BIND_TO");
  } else {
    setenv("PEAL_BIND_TO", before.c_str(), 1);
  }
}

TEST_CASE("a process binds its threads, those that it had, too") {
  const auto before = allowed_cpus();
  std::promise<void> bound;
  std::vector<int> seen;
  std::thread other([&] {
    bound.get_future().wait();
    seen = allowed_cpus();
  });
  CHECK(!bind_process({}));
  CHECK(bind_process({before.back()}));
  bound.set_value();
  other.join();
  CHECK(seen == std::vector<int>{before.back()});
  CHECK(allowed_cpus() == std::vector<int>{before.back()});
  REQUIRE(bind_process(before));
  CHECK(allowed_cpus() == before);
}

TEST_CASE("a process that is bound to one cpu knows it") {
  const auto before = allowed_cpus();
  REQUIRE(!before.empty());
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(before.back()), &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(allowed_cpus() == std::vector<int>{before.back()});
  CHECK(count_cores(allowed_cpus()) == 1);
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const int cpu : before) CPU_SET(static_cast<unsigned>(cpu), &all);
  REQUIRE(sched_setaffinity(0, sizeof all, &all) == 0);
}

TEST_CASE("a rank bound to far fewer cores than its share is warned, with the flag to use") {
  const Rank rank{1, 4, 1, 2, "Open MPI"};
  const std::string warning = binding_warning(bound_to(1, 64), rank);
  CHECK(mentions(warning, "[launch] rank 1 is bound to 1 of 64 cores, and its share"));
  CHECK(mentions(warning, "its share among 2 ranks on this node is 32"));
  CHECK(mentions(warning, "`peal-mpirun -n 4 PROGRAM ...`"));
  CHECK(mentions(warning, "--map-by slot:PE=32 --bind-to core"));
  CHECK(mentions(binding_warning(bound_to(1, 64), {0, 2, 0, 2, "Slurm"}), "--cpus-per-task=32"));
  CHECK(mentions(binding_warning(bound_to(16, 64), rank), "bound to 16 of 64"));
}

TEST_CASE("a fair binding is not warned of") {
  CHECK(binding_warning(bound_to(32, 64), {0, 2, 0, 2, "Open MPI"}).empty());
  CHECK(binding_warning(bound_to(64, 64), {0, 2, 0, 2, "Open MPI"}).empty());
  CHECK(binding_warning(bound_to(1, 2), {0, 2, 0, 2, "Open MPI"}).empty());
  CHECK(binding_warning(bound_to(1, 2), {0, 8, 0, 8, "Open MPI"}).empty());
  CHECK(binding_warning(bound_to(1, 64), {}).empty());  // taskset, on purpose
}

TEST_CASE("the report says cores and threads") {
  CHECK(binding_report(bound_to(4, 8), {1, 2, 1, 2, "Open MPI"}, 4) ==
        "rank 1 may use cpus 0-3 (4 of 8 cores), 4 threads an op");
  CHECK(binding_report(bound_to(1, 1), {}, 1) ==
        "rank 0 may use cpus 0 (1 of 1 core), 1 thread an op");
}

TEST_CASE("the process's own cores follow its affinity") {
  const Cores all = cores();
  REQUIRE(!all.cpus.empty());
  CHECK(all.allowed >= 1);
  CHECK(all.allowed <= static_cast<int>(all.cpus.size()));
  CHECK(all.machine >= 1);

  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  CPU_SET(all.cpus.back(), &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const Cores bound = cores();
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(bound.cpus == std::vector<int>{all.cpus.back()});
  CHECK(bound.allowed == 1);
  CHECK(bound.machine >= all.machine - all.allowed + 1);
}
