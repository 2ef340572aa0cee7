// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cores.h>
#include <peal/autograd/core/error.h>

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace peal {

// The mask grows until it has room for all that the kernel knows.
std::vector<int> allowed_cpus(int pid) {
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

// Siblings share one list, which so names their core.
std::vector<std::vector<int>> cpus_by_core(const std::vector<int>& cpus) {
  std::vector<std::vector<int>> cores;
  std::map<std::string, std::size_t> places;
  for (const int cpu : cpus) {
    std::ifstream file(
        concat("/sys/devices/system/cpu/cpu", cpu, "/topology/thread_siblings_list"));
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = concat(cpu);
    const auto [place, first] = places.try_emplace(siblings, cores.size());
    if (first) cores.emplace_back();
    cores[place->second].push_back(cpu);
  }
  return cores;
}

// `online` lists the nodes, and each one's `cpulist` its cpus.
std::vector<std::vector<int>> cpus_by_numa_node(const std::string& folder) {
  const auto listed = [&](const std::string& name) {
    std::ifstream file(concat(folder, "/", name));
    std::string list;
    std::getline(file, list);
    return parse_cpu_list(list);
  };
  std::vector<std::vector<int>> nodes;
  for (const int node : listed("online")) {
    std::vector<int> cpus = listed(concat("node", node, "/cpulist"));
    if (!cpus.empty()) nodes.push_back(std::move(cpus));  // one of memory alone has none
  }
  return nodes;
}

int count_cores(const std::vector<int>& cpus) {
  return static_cast<int>(cpus_by_core(cpus).size());
}

// `QUOTA PERIOD` in microseconds, or `max PERIOD`.
int cpu_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (file >> quota >> period && period > 0)
    return std::max(1, static_cast<int>(std::ceil(quota / period)));
  return std::numeric_limits<int>::max();
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

std::vector<int> parse_cpu_list(std::string_view list) {
  std::vector<int> cpus;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at != end) {
    unsigned first = 0;
    auto read = std::from_chars(at, end, first);
    unsigned last = first;
    if (read.ec == std::errc{} && read.ptr != end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
    }
    PEAL_CHECK(read.ec == std::errc{} && (read.ptr == end || *read.ptr == ','),
               "expected a list of cpus as 0-3,8, got '", list, "'");
    for (; first <= last; ++first) cpus.push_back(static_cast<int>(first));
    at = read.ptr == end ? end : read.ptr + 1;
  }
  return cpus;
}

bool crowded(const std::vector<std::vector<int>>& cpus, int quota) {
  if (cpus.size() > static_cast<std::size_t>(quota)) return true;
  const std::set<std::vector<int>> different(cpus.begin(), cpus.end());
  return std::ranges::any_of(different, [&](const std::vector<int>& room) {
    if (room.empty()) return false;
    const auto within = std::ranges::count_if(
        cpus, [&](const auto& one) { return !one.empty() && std::ranges::includes(room, one); });
    return static_cast<std::size_t>(within) > room.size();
  });
}

}  // namespace peal
