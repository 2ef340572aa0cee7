// SPDX-License-Identifier: Apache-2.0
// Rank discovery: which rank of how many am I, and on which place of my node?
//
// Launchers tell their processes through environment variables. Only the innermost launcher counts:
// mpirun inside a batch job is Open MPI's world and not Slurm's, and torchrun under srun is
// torchrun's. Whether ranks then meet by MPI or without it is not said here (torchrun.h): under
// srun it is MPI where srun speaks PMI, and else MASTER_ADDR. A variable that is set, but partial
// or garbage, is an error and never a guess; where MPI runs as well, check_world() holds its world
// against the environment's, for a launcher that MPI does not know would otherwise start as many
// lonely trainings as ranks. Pure: reads nothing but the function handed in. Thread safety: free
// functions without state.
#pragma once

#include <functional>
#include <span>
#include <string>

namespace peal::launch {

// One process of a job. 0 <= rank < world; 0 <= local_rank < local_world, over the ranks of one
// node.
struct Rank {
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;
  std::string launcher = "alone";  // "Open MPI", "MPICH/PMI", "torchrun", "Slurm" or "alone"
  bool node_said = false;          // the local two are the launcher's word, not a guess
  bool operator==(const Rank&) const = default;
};

// Looks a variable up, as getenv does: null when unset.
using Environment = std::function<const char*(const char*)>;

// Asks for Open MPI, MPICH/PMI, torchrun and a Slurm step, in this order; else alone. Where a
// launcher says nothing of the node, all ranks are taken to be on one, which place_on_node() mends.
// Throws Error naming variable and value.
Rank discover(const Environment& env);

// local_rank and local_world, once the ranks know which of them share a node: by rank, the node it
// is on.
void place_on_node(Rank& rank, std::span<const int> nodes);

// Throws Error when the environment's world or rank is not MPI's, saying how to start instead. A
// process that is alone by its environment believes MPI.
void check_world(const Rank& from_env, int mpi_rank, int mpi_world);

}  // namespace peal::launch
