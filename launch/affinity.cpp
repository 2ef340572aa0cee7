// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/affinity.h>

#include <algorithm>

namespace peal::launch {
namespace {

int share(const Cores& cores, const Rank& rank) {
  return std::max(1, cores.machine / std::max(1, rank.local_world));
}

}  // namespace

Cores cores() {
  Cores result;
  result.cpus = allowed_cpus();
  result.allowed = std::max(1, count_cores(result.cpus));
  result.machine = std::min(std::max(result.allowed, count_cores(allowed_cpus(1))), cpu_quota());
  return result;
}

int intra_op_threads(int allowed, int machine, int local_world) {
  return std::max(1, std::min(allowed, machine / std::max(1, local_world)));
}

std::string binding_report(const Cores& cores, const Rank& rank, int threads) {
  return concat("rank ", rank.rank, " may use cpus ", cpu_list(cores.cpus), " (", cores.allowed,
                " of ", cores.machine, cores.machine == 1 ? " core), " : " cores), ", threads,
                threads == 1 ? " thread an op" : " threads an op");
}

std::string binding_warning(const Cores& cores, const Rank& rank) {
  const int fair = share(cores, rank);
  if (rank.launcher == "alone" || cores.allowed * 2 > fair) return "";
  std::string flags;
  if (rank.launcher == "Slurm") {
    flags = concat("pass `--cpus-per-task=", fair, "` to srun");
  } else if (rank.launcher == "Open MPI") {
    flags = concat("start with `peal-run -n ", rank.world,
                   " PROGRAM ...`, or pass `--map-by slot:PE=", fair, " --bind-to core` to mpirun");
  } else {
    flags = concat("tell the launcher (", rank.launcher, ") to bind no rank, or each to ", fair,
                   " cores");
  }
  return concat("[launch] rank ", rank.rank, " is bound to ", cores.allowed, " of ", cores.machine,
                " cores (cpus ", cpu_list(cores.cpus), "), and its share among ", rank.local_world,
                rank.local_world == 1 ? " rank" : " ranks", " on this node is ", fair, ": ", flags);
}

}  // namespace peal::launch
