// SPDX-License-Identifier: Apache-2.0
// The threads an op gets, and what is said of a rank's binding.
#include <doctest/doctest.h>
#include <peal/launch/affinity.h>
#include <sched.h>

#include <limits>

using namespace peal;
using namespace peal::launch;

namespace {

Cores bound_to(int allowed, int machine) {
  Cores cores{{}, allowed, machine};
  for (int cpu = 0; cpu < allowed; ++cpu) cores.cpus.push_back(cpu);
  return cores;
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
  CHECK(mentions(warning, "[launch] rank 1 is bound to 1 of 64 cores (cpus 0)"));
  CHECK(mentions(warning, "its share among 2 ranks on this node is 32"));
  CHECK(mentions(warning, "`peal-run -n 4 PROGRAM ...`"));
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
