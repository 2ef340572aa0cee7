// SPDX-License-Identifier: Apache-2.0
// Rank discovery under every launcher, as pure functions of the environment.
#include <doctest/doctest.h>
#include <peal/autograd/core/lone_ranks.h>
#include <peal/launch/rank.h>
#include <peal/tests/errors.h>

#include <map>
#include <string>

using peal::launch::check_world;
using peal::launch::discover;
using peal::launch::Rank;

namespace {

using Variables = std::map<std::string, std::string>;

Rank find(const Variables& variables) {
  return discover([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables operator+(Variables left, const Variables& right) {
  left.insert(right.begin(), right.end());
  return left;
}

std::string error_of(const Variables& variables) {
  return peal::testing::error_of([&] { find(variables); });
}

const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_SIZE", "8"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables mpich{
    {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const Variables torchrun{
    {"RANK", "5"}, {"WORLD_SIZE", "6"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "3"}};
const Variables slurm_script{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "14"}, {"SLURM_LOCALID", "0"}};
const Variables slurm_step{{"SLURM_PROCID", "13"},
                           {"SLURM_STEP_NUM_TASKS", "14"},
                           {"SLURM_LOCALID", "1"},
                           {"SLURM_NODEID", "3"},
                           {"SLURM_STEP_TASKS_PER_NODE", "4(x3),2"}};

}  // namespace

TEST_CASE("each launcher's variables give rank, world and place on the node") {
  CHECK(find({}) == Rank{0, 1, 0, 1, "alone"});
  CHECK(find(open_mpi) == Rank{3, 8, 1, 2, "Open MPI", true});
  CHECK(find(mpich) == Rank{2, 4, 0, 2, "MPICH/PMI", true});
  CHECK(find(torchrun) == Rank{5, 6, 2, 3, "torchrun", true});
  CHECK(find(slurm_step) == Rank{13, 14, 1, 2, "Slurm", true});
}

TEST_CASE("Slurm's tasks per node are read at this node") {
  const auto local_world = [](const char* node, const char* list) {
    return find(Variables{{"SLURM_NODEID", node}, {"SLURM_STEP_TASKS_PER_NODE", list}} + slurm_step)
        .local_world;
  };
  CHECK(local_world("0", "4(x3),2") == 4);
  CHECK(local_world("2", "4(x3),2") == 4);
  CHECK(local_world("3", "4(x3),2") == 2);
  CHECK(local_world("1", "5,6,3") == 6);
  CHECK(local_world("0", "14") == 14);
  for (const char* bad : {"4(x3)", "", "x", "4(3),2", "4(x3", ",,,,2", "0(x9)"}) {
    CAPTURE(bad);
    const std::string error = error_of(Variables{{"SLURM_STEP_TASKS_PER_NODE", bad}} + slurm_step);
    CHECK(error.find("SLURM_STEP_TASKS_PER_NODE") != std::string::npos);
  }
}

TEST_CASE("the innermost launcher wins") {
  CHECK(find(open_mpi + slurm_step).launcher == "Open MPI");
  CHECK(find(open_mpi + slurm_script).launcher == "Open MPI");
  CHECK(find(open_mpi + torchrun).launcher == "Open MPI");
  CHECK(find(mpich + slurm_step).launcher == "MPICH/PMI");
  CHECK(find(torchrun + slurm_step).launcher == "torchrun");
  // srun's own PMI knows no node.
  CHECK(find(Variables{{"PMI_RANK", "13"}, {"PMI_SIZE", "14"}} + slurm_step) == find(slurm_step));
}

TEST_CASE("a batch script is alone, and a batch script's WORLD_SIZE does not disturb its steps") {
  CHECK(find(slurm_script) == Rank{});
  CHECK(find(Variables{{"WORLD_SIZE", "14"}} + slurm_step).launcher == "Slurm");
}

TEST_CASE("without local variables all ranks are on one node") {
  CHECK(find({{"RANK", "1"}, {"WORLD_SIZE", "2"}}) == Rank{1, 2, 1, 2, "torchrun"});
  CHECK(find({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}) == Rank{0, 2, 0, 2, "MPICH/PMI"});
}

TEST_CASE("WORLD_SIZE without a launcher is an error that says how to start") {
  CHECK(error_of({{"WORLD_SIZE", "2"}}) ==
        "[launch] the environment says WORLD_SIZE=2 but has no RANK, and no launcher started this "
        "process: start with `mpirun -n 2 PROGRAM ...`, or unset WORLD_SIZE to train alone");
  CHECK(find({{"WORLD_SIZE", "1"}}) == Rank{});
  CHECK(find({{"WORLD_SIZE", ""}}) == Rank{});
}

TEST_CASE("garbage and partial values are errors that name the variable and the value") {
  const auto names = [](const Variables& variables, const char* name, const char* value) {
    const std::string error = error_of(variables);
    CAPTURE(error);
    CHECK(error.find(name) != std::string::npos);
    CHECK(error.find(value) != std::string::npos);
  };
  for (const char* bad : {"two", "2x", "-1", "1.5", " 2", "99999999999999999999", "+1"}) {
    names(Variables{{"OMPI_COMM_WORLD_RANK", bad}} + open_mpi, "OMPI_COMM_WORLD_RANK", bad);
    names(Variables{{"PMI_SIZE", bad}} + mpich, "PMI_SIZE", bad);
    names(Variables{{"LOCAL_RANK", bad}} + torchrun, "LOCAL_RANK", bad);
    names(Variables{{"SLURM_STEP_NUM_TASKS", bad}} + slurm_step, "SLURM_STEP_NUM_TASKS", bad);
    names({{"WORLD_SIZE", bad}}, "WORLD_SIZE", bad);
  }
  names(Variables{{"OMPI_COMM_WORLD_SIZE", "0"}} + open_mpi, "OMPI_COMM_WORLD_SIZE", "'0'");
  names(Variables{{"RANK", "6"}} + torchrun, "RANK=6", "WORLD_SIZE=6");
  names(Variables{{"LOCAL_RANK", "3"}} + torchrun, "LOCAL_RANK=3", "LOCAL_WORLD_SIZE=3");
  names(Variables{{"LOCAL_WORLD_SIZE", "7"}} + torchrun, "LOCAL_WORLD_SIZE=7", "WORLD_SIZE=6");
  names({{"RANK", "1"}}, "RANK=1", "no WORLD_SIZE");
  names({{"OMPI_COMM_WORLD_SIZE", "4"}}, "OMPI_COMM_WORLD_SIZE=4", "no OMPI_COMM_WORLD_RANK");
  names({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}, "LOCAL_RANK=1",
        "no LOCAL_WORLD_SIZE");
}

TEST_CASE("a world that MPI does not share is an error that says how to start") {
  const auto error = [](const Variables& variables, int rank, int world) {
    return peal::testing::error_of([&] { check_world(find(variables), rank, world); });
  };
  CHECK(error(open_mpi, 3, 8) == "nothing");
  CHECK(error({}, 3, 8) == "nothing");
  CHECK(error({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, 0, 1) ==
        "[launch] the environment (torchrun's WORLD_SIZE) says world 2, but MPI started 1 process: "
        "start "
        "with `mpirun -n 2 PROGRAM ...`, or unset RANK and WORLD_SIZE to train alone");
  CHECK(error(torchrun, 2, 4).find("MPI started 4 processes") != std::string::npos);
  CHECK(error(mpich, 0, 1).find("the mpirun of the MPI that the program was built with") !=
        std::string::npos);
  CHECK(error(slurm_step, 0, 1).find("`srun --mpi=pmix -n 14 PROGRAM ...`") != std::string::npos);
  CHECK(error(slurm_step, 0, 1).find("`srun --mpi=none -n 14 PROGRAM ...` with MASTER_ADDR") !=
        std::string::npos);
  CHECK(error(torchrun, 4, 6).find("RANK) says rank 5, but MPI says rank 4 of 6") !=
        std::string::npos);
}

TEST_CASE("ranks that a launcher started, and that nobody joined, are told so by their first") {
  const auto says = [](std::map<std::string, std::string> variables) {
    return peal::lone_ranks([&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  CHECK(says({}).empty());
  CHECK(says({{"WORLD_SIZE", "4"}}).empty());
  CHECK(says({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).empty());
  CHECK(says({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}).empty());
  CHECK(says({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}) ==
        "4 ranks were started (PMI_SIZE), but this program made no launch::Job: each rank trains "
        "by itself, on all data. Make a Job (launch/job.h) to train together, or start it without "
        "a launcher");
}
