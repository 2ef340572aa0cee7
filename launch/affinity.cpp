// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/affinity.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace peal::launch {
namespace {

int share(const Cores& cores, const Rank& rank) {
  return std::max(1, cores.machine / std::max(1, rank.local_world));
}

// The cores, so that those of a share stand together: of each NUMA node the whole shares that it
// has, then what all have left.
std::vector<std::vector<int>> in_dealing_order(const std::vector<std::vector<int>>& cores,
                                               const std::vector<std::vector<int>>& numa_nodes,
                                               std::size_t share) {
  std::vector<std::vector<std::vector<int>>> by_node(numa_nodes.size() + 1);  // last: of none
  for (const std::vector<int>& core : cores) {
    const auto holds = [&](const std::vector<int>& cpus) {
      return std::ranges::count(cpus, core.front()) > 0;
    };
    const auto node = std::ranges::find_if(numa_nodes, holds) - numa_nodes.begin();
    by_node[static_cast<std::size_t>(node)].push_back(core);
  }
  std::vector<std::vector<int>> whole, left;
  for (const auto& here : by_node) {
    const std::size_t fitting = here.size() / share * share;
    for (std::size_t i = 0; i < here.size(); ++i) (i < fitting ? whole : left).push_back(here[i]);
  }
  whole.insert(whole.end(), left.begin(), left.end());
  return whole;
}

}  // namespace

Cores cores() {
  Cores result;
  result.cpus = allowed_cpus();
  result.allowed = std::max(1, count_cores(result.cpus));
  result.machine = std::min(std::max(result.allowed, count_cores(allowed_cpus(1))), cpu_quota());
  return result;
}

std::vector<int> even_share(const std::vector<std::vector<int>>& cores,
                            const std::vector<std::vector<int>>& numa_nodes, int local_rank,
                            int local_world) {
  const std::size_t share = cores.size() / static_cast<std::size_t>(local_world);
  std::vector<int> cpus;
  if (share == 0 || local_world == 1) return cpus;
  const auto dealt = in_dealing_order(cores, numa_nodes, share);
  const auto first = static_cast<std::size_t>(local_rank) * share;
  for (std::size_t core = first; core < first + share; ++core)
    cpus.insert(cpus.end(), dealt[core].begin(), dealt[core].end());
  std::ranges::sort(cpus);
  return cpus;
}

std::vector<int> share_near(const std::vector<std::vector<int>>& cores, std::string_view list,
                            int place, int ranks) {
  const std::vector<int> near = parse_cpu_list(list);
  std::vector<std::vector<int>> here;
  for (const std::vector<int>& core : cores) {
    if (std::ranges::count(near, core.front()) > 0) here.push_back(core);
  }
  if (here.empty() || (here.size() == cores.size() && ranks == 1)) return {};
  if (ranks > 1) return even_share(here, {}, place, ranks);
  std::vector<int> cpus;
  for (const std::vector<int>& core : here) cpus.insert(cpus.end(), core.begin(), core.end());
  std::ranges::sort(cpus);
  return cpus;
}

bool is_placed() {
  const char* said = std::getenv("PEAL_BIND_TO");
  return (said != nullptr && std::string_view(said) == "none") || allowed_cpus() != allowed_cpus(1);
}

std::string local_cpu_list(const std::string& pci) {
  std::string list;
  if (!pci.empty()) std::ifstream("/sys/bus/pci/devices/" + pci + "/local_cpulist") >> list;
  return list;
}

bool bind_process(const std::vector<int>& cpus) {
  if (cpus.empty()) return false;
  const auto room = static_cast<std::size_t>(cpus.back()) + 1;  // they ascend
  cpu_set_t* const set = CPU_ALLOC(room);
  const std::size_t bytes = CPU_ALLOC_SIZE(room);
  CPU_ZERO_S(bytes, set);
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set);
  bool bound = true;
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    const int thread = std::stoi(task.path().filename().string());
    // A thread may have ended meanwhile.
    if (sched_setaffinity(thread, bytes, set) != 0 && errno != ESRCH) bound = false;
  }
  CPU_FREE(set);
  return bound && !gone;
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
    flags = concat("start with `peal-mpirun -n ", rank.world,
                   " PROGRAM ...`, or pass `--map-by slot:PE=", fair, " --bind-to core` to mpirun");
  } else {
    flags = concat("tell the launcher (", rank.launcher, ") to bind no rank, or each to ", fair,
                   " cores");
  }
  return concat("[launch] rank ", rank.rank, " is bound to ", cores.allowed, " of ", cores.machine,
                " cores, and its share among ", rank.local_world,
                rank.local_world == 1 ? " rank" : " ranks", " on this node is ", fair, ": ", flags);
}

}  // namespace peal::launch
