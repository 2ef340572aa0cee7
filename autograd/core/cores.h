// SPDX-License-Identifier: Apache-2.0
// CPU affinity and quota: which cores this process may run on, and whether processes that wait for
// one another have a core each. What counts is what they may use: a container with 2 of 64 cores,
// or a rank bound to one, has no more, whatever the machine has.
//
// A cpu here is a hardware thread, a core a physical core, whose hardware threads share its
// arithmetic units. crowded() and cpu_list() are pure. Thread safety: free functions without state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace peal {

// The cpus that the process `pid` may run on, ascending (0: the calling thread); empty where the
// kernel won't say.
std::vector<int> allowed_cpus(int pid = 0);

// The cpus by the core that they are on; cores by their first cpu.
std::vector<std::vector<int>> cpus_by_core(const std::vector<int>& cpus);

// The cpus of each NUMA node that has any, as the kernel lists them in `folder`; nothing where it
// lists none.
std::vector<std::vector<int>> cpus_by_numa_node(
    const std::string& folder = "/sys/devices/system/node");

// How many cores the cpus are on.
int count_cores(const std::vector<int>& cpus);

// The cores that the container's processes may keep busy together (cgroup v2's cpu.max, rounded
// up); the largest int where it says nothing.
int cpu_quota();

// 0-3,8: cpus in the kernel's list format, ascending, and back.
std::string cpu_list(const std::vector<int>& cpus);
std::vector<int> parse_cpu_list(std::string_view list);

// Whether processes that spin take cores from one another: there are more of them than the quota
// allows, or than the cpus that some of them are bound to. One set of cpus a process; an empty one
// may be any.
bool crowded(const std::vector<std::vector<int>>& cpus, int quota);

}  // namespace peal
