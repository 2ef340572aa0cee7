// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/rank.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace peal::launch {
namespace {

// The variables of one launcher.
struct Names {
  std::string_view launcher;
  const char *rank, *world, *local_rank, *local_world;
};

constexpr Names open_mpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names pmi{"MPICH/PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Names torchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
// A batch script has SLURM_PROCID too: only a step, which srun starts, has a number of tasks of its
// own.
constexpr Names slurm{"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                      "SLURM_STEP_TASKS_PER_NODE"};

std::optional<int> parse(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The variable's value, which must be a whole number of at least `least`; nothing when unset or
// empty.
std::optional<int> number(const Environment& env, const char* name, int least) {
  const char* text = env(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::optional<int> value = parse(text);
  PEAL_CHECK(value && *value >= least, "[launch] the environment variable ", name, " is '", text,
             "', expected a whole number of at least ", least,
             ": the launcher sets it, so unset it and start again");
  return value;
}

// Slurm writes the tasks of every node as 4(x3),2: the number at place `node`.
std::optional<int> slurm_tasks(std::string_view list, int node) {
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(entry.size() + 1, list.size()));
    const std::size_t bracket = entry.find("(x");
    const std::optional<int> tasks = parse(entry.substr(0, bracket));
    std::optional<int> nodes = 1;
    if (bracket != entry.npos) {
      if (entry.back() != ')') return std::nullopt;
      nodes = parse(entry.substr(bracket + 2, entry.size() - bracket - 3));
    }
    if (!tasks || !nodes) return std::nullopt;
    if (node < *nodes) return tasks;
    node -= *nodes;
  }
  return std::nullopt;
}

std::optional<int> local_world_of(const Environment& env, const Names& names) {
  if (names.launcher != slurm.launcher) return number(env, names.local_world, 1);
  const char* list = env(names.local_world);
  if (list == nullptr || *list == '\0') return std::nullopt;
  const int node = number(env, "SLURM_NODEID", 0).value_or(0);
  const std::optional<int> tasks = slurm_tasks(list, node);
  PEAL_CHECK(tasks && *tasks >= 1, "[launch] the environment variable ", names.local_world, " is '",
             list, "', expected the tasks of each node, as 4(x2),3, with an entry for node ", node,
             " (SLURM_NODEID)");
  return tasks;
}

void check_pair(const char* set, int value, bool other_set, const char* other) {
  PEAL_CHECK(other_set, "[launch] the environment has ", set, "=", value, " but no ", other,
             ": set both or neither");
}

void check_below(const char* name, int value, const char* bound_name, int bound) {
  PEAL_CHECK(value < bound, "[launch] the environment says ", name, "=", value,
             ", expected less than ", bound_name, "=", bound);
}

// The rank by one launcher's variables, of which rank and world must both be there.
Rank read(const Environment& env, const Names& names) {
  const auto rank = number(env, names.rank, 0), world = number(env, names.world, 1);
  const auto local_rank = number(env, names.local_rank, 0),
             local_world = local_world_of(env, names);
  if (rank) check_pair(names.rank, *rank, world.has_value(), names.world);
  if (world) check_pair(names.world, *world, rank.has_value(), names.rank);
  if (local_rank)
    check_pair(names.local_rank, *local_rank, local_world.has_value(), names.local_world);
  if (local_world)
    check_pair(names.local_world, *local_world, local_rank.has_value(), names.local_rank);
  check_below(names.rank, *rank, names.world, *world);
  if (local_rank) {
    check_below(names.local_rank, *local_rank, names.local_world, *local_world);
    PEAL_CHECK(*local_world <= *world, "[launch] the environment says ", names.local_world, "=",
               *local_world, ", expected at most ", names.world, "=", *world);
  }
  return {*rank,
          *world,
          local_rank.value_or(*rank),
          local_world.value_or(*world),
          std::string(names.launcher),
          local_rank.has_value()};
}

}  // namespace

Rank discover(const Environment& env) {
  const auto has = [&](const char* name) {
    const char* text = env(name);
    return text != nullptr && *text != '\0';
  };
  if (has(open_mpi.rank) || has(open_mpi.world)) return read(env, open_mpi);
  // srun speaks PMI as well, which then says nothing of the node; Slurm's own variables do.
  const bool srun_pmi = has(slurm.world) && !has(pmi.local_rank) && !has(pmi.local_world);
  if ((has(pmi.rank) || has(pmi.world)) && !srun_pmi) return read(env, pmi);
  // Batch scripts like to export WORLD_SIZE alone: under srun it is not torchrun's.
  if (has(torchrun.rank)) return read(env, torchrun);
  if (has(slurm.world)) return read(env, slurm);
  const std::optional<int> world = number(env, torchrun.world, 1);
  PEAL_CHECK(!world || *world == 1, "[launch] the environment says WORLD_SIZE=", *world,
             " but has no RANK, and no launcher started this process: start with `mpirun -n ",
             *world, " PROGRAM ...`, or unset WORLD_SIZE to train alone");
  return {};
}

void place_on_node(Rank& rank, std::span<const int> nodes) {
  const auto here = nodes.begin() + rank.rank;
  rank.local_rank = static_cast<int>(std::count(nodes.begin(), here, *here));
  rank.local_world = static_cast<int>(std::count(nodes.begin(), nodes.end(), *here));
}

void check_world(const Rank& from_env, int mpi_rank, int mpi_world) {
  if (from_env.launcher == "alone") return;
  const Names* names = &torchrun;
  for (const Names* each : {&open_mpi, &pmi, &slurm})
    if (each->launcher == from_env.launcher) names = each;

  const std::string processes = concat(mpi_world, mpi_world == 1 ? " process" : " processes",
                                       ": start with `mpirun -n ", from_env.world, " PROGRAM ...`");
  std::string advice;
  if (names == &torchrun) {
    advice = ", or unset RANK and WORLD_SIZE";
    if (mpi_world == 1) advice += " to train alone";
  } else if (names == &slurm) {
    advice = concat(" inside the job, or with `srun --mpi=pmix -n ", from_env.world,
                    " PROGRAM ...`, or without MPI: `srun --mpi=none -n ", from_env.world,
                    " PROGRAM ...` with MASTER_ADDR (rank 0's node) and MASTER_PORT set");
  } else {
    advice = ", with the mpirun of the MPI that the program was built with";
  }
  PEAL_CHECK(from_env.world == mpi_world, "[launch] the environment (", from_env.launcher, "'s ",
             names->world, ") says world ", from_env.world, ", but MPI started ", processes,
             advice);
  PEAL_CHECK(from_env.rank == mpi_rank, "[launch] the environment (", from_env.launcher, "'s ",
             names->rank, ") says rank ", from_env.rank, ", but MPI says rank ", mpi_rank, " of ",
             mpi_world, ": start with `mpirun -n ", mpi_world, " PROGRAM ...`", advice);
}

}  // namespace peal::launch
