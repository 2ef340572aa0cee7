// SPDX-License-Identifier: Apache-2.0
// Where ranks meet without MPI, as a pure function of the environment.
#include <doctest/doctest.h>
#include <peal/launch/torchrun.h>
#include <peal/tests/errors.h>

#include <map>
#include <optional>
#include <string>

using peal::launch::discover;
using peal::launch::master_address;
using peal::launch::MasterAddress;

namespace {

using Variables = std::map<std::string, std::string>;

std::optional<MasterAddress> find(const Variables& variables) {
  const auto env = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return master_address(discover(env), env);
}

// What is on the right takes the place of what is on the left.
Variables operator+(const Variables& left, Variables right) {
  right.insert(left.begin(), left.end());
  return right;
}

// "HOST PORT RUN", or "nowhere".
std::string place(const Variables& variables) {
  const auto found = find(variables);
  return found ? found->host + " " + std::to_string(found->port) + " " + found->run : "nowhere";
}

std::string error_of(const Variables& variables) {
  return peal::testing::error_of([&] { find(variables); });
}

const Variables master{{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
const Variables script = master + Variables{{"RANK", "5"}, {"WORLD_SIZE", "6"}};
const Variables local{{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "3"}};
const Variables agent{{"TORCHELASTIC_RUN_ID", "a"},
                      {"TORCHELASTIC_RESTART_COUNT", "2"},
                      {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables step{{"SLURM_JOB_ID", "4711"}, {"SLURM_STEP_ID", "3"},
                     {"SLURM_PROCID", "5"},    {"SLURM_STEP_NUM_TASKS", "6"},
                     {"SLURM_LOCALID", "2"},   {"SLURM_NODEID", "1"},
                     {"SLURM_NTASKS", "6"},    {"SLURM_STEP_TASKS_PER_NODE", "3(x2)"}};

}  // namespace

TEST_CASE("ranks of a script or of torchrun meet at MASTER_ADDR") {
  CHECK(place(script) == "node1 29500 ");
  CHECK(place(script + local) == "node1 29500 ");
  CHECK(place(script + local + agent) == "node1 29501 a/2");
  CHECK(place(script + Variables{{"LOCAL_RANK", "5"}, {"LOCAL_WORLD_SIZE", "6"}}) ==
        "127.0.0.1 29500 ");
  CHECK(place(master) == "nowhere");  // alone
  CHECK(place({{"RANK", "5"}, {"WORLD_SIZE", "6"}}) == "nowhere");
}

TEST_CASE("ranks of srun without MPI meet at MASTER_ADDR, by job and step") {
  CHECK(place(master + step) == "node1 29500 slurm/4711.3");
  CHECK(place(master + step + Variables{{"SLURM_STEP_ID", "4"}}) == "node1 29500 slurm/4711.4");
  CHECK(
      place(master + step + Variables{{"SLURM_STEP_TASKS_PER_NODE", "6"}, {"SLURM_NODEID", "0"}}) ==
      "127.0.0.1 29500 slurm/4711.3");
  CHECK(place(step) == "nowhere");
  // A batch script is no step of its own.
  CHECK(place(master + Variables{{"SLURM_JOB_ID", "4711"}, {"SLURM_PROCID", "0"}}) == "nowhere");
  // What an agent around it has left there is not of this step.
  CHECK(place(master + step + agent) == "node1 29500 slurm/4711.3");
}

TEST_CASE("ranks that have MPI meet by it, but for those of torchrun") {
  for (const char* pmi : {"PMIX_RANK", "PMI_RANK"}) {
    CAPTURE(pmi);
    const Variables by_mpi{{pmi, "5"}, {"PMI_SIZE", "6"}};
    CHECK(place(master + step + by_mpi) == "nowhere");
    CHECK(place(master + step + by_mpi + agent) == "nowhere");
  }
  const Variables pmix{{"PMIX_RANK", "0"}};
  CHECK(place(script + pmix) == "nowhere");
  CHECK(place(script + pmix + agent) == "node1 29501 a/2");
  const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  CHECK(place(script + step + open_mpi) == "nowhere");
}

TEST_CASE("half of an address and no port are errors, of srun's ranks as well") {
  for (const Variables& of : {Variables{{"RANK", "5"}, {"WORLD_SIZE", "6"}}, step}) {
    CHECK(error_of(of + Variables{{"MASTER_ADDR", "node1"}}) ==
          "[launch] the environment has MASTER_ADDR but no MASTER_PORT: set both, for rank 0 "
          "listens there");
    CHECK(error_of(of + Variables{{"MASTER_PORT", "5"}}).find("MASTER_PORT but no MASTER_ADDR") !=
          std::string::npos);
    for (const char* bad : {"0", "65536", "29500x", "-1", "port"}) {
      CHECK(error_of(of + master + Variables{{"MASTER_PORT", bad}}) ==
            std::string("[launch] the environment variable MASTER_PORT is '") + bad +
                "', expected a port, 1 to 65535");
    }
  }
  CHECK(error_of(script + agent + Variables{{"MASTER_PORT", "65535"}}).find("1 to 65534") !=
        std::string::npos);
}
