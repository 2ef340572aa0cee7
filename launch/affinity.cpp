// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/affinity.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>

namespace peal::launch {
namespace {

// The hardware threads process `pid` may use (0: the calling thread); empty when the kernel won't
// say. The mask grows until it has room for all that the kernel knows.
std::vector<int> affinity(pid_t pid) {
  for (int room = 1024; room <= (1 << 20); room *= 2) {
    cpu_set_t* set = CPU_ALLOC(room);
    const std::size_t bytes = CPU_ALLOC_SIZE(room);
    std::vector<int> cpus;
    if (sched_getaffinity(pid, bytes, set) == 0)
      for (int cpu = 0; cpu < room; ++cpu)
        if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    CPU_FREE(set);
    if (!cpus.empty()) return cpus;
  }
  return {};
}

// How many cores these hardware threads are on. Siblings share one list, which so names their core.
int count_cores(const std::vector<int>& cpus) {
  std::set<std::string> names;
  for (const int cpu : cpus) {
    std::ifstream file(
        concat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    std::string siblings;
    names.insert(std::getline(file, siblings) ? siblings : concat(cpu));
  }
  return static_cast<int>(names.size());
}

// The cores that the container may keep busy: cpu.max says `QUOTA PERIOD` in microseconds, or `max
// PERIOD`.
int quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (file >> quota >> period && period > 0)
    return std::max(1, static_cast<int>(std::ceil(quota / period)));
  return std::numeric_limits<int>::max();
}

int share(const Cores& cores, const Rank& rank) {
  return std::max(1, cores.machine / std::max(1, rank.local_world));
}

}  // namespace

Cores cores() {
  Cores result;
  result.cpus = affinity(0);
  result.allowed = std::max(1, count_cores(result.cpus));
  result.machine = std::min(std::max(result.allowed, count_cores(affinity(1))), quota());
  return result;
}

int intra_op_threads(int allowed, int machine, int local_world) {
  return std::max(1, std::min(allowed, machine / std::max(1, local_world)));
}

std::string cpu_list(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t first = 0; first < cpus.size();) {
    std::size_t last = first;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += concat(first == 0 ? "" : ",", cpus[first]);
    if (last > first) text += concat("-", cpus[last]);
    first = last + 1;
  }
  return text;
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
