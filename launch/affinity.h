// SPDX-License-Identifier: Apache-2.0
// Affinity: which cores this rank may run on, how many threads an op should use, and whether the
// launcher gave the rank far fewer cores than its share. mpirun -n 2 binds each rank to a single
// core, even on a machine with 64: the training then runs, correct and thirty times too slow,
// without a word.
//
// A core here is a physical core: the hardware threads of one core share its arithmetic units and
// count once. cores(), local_cpu_list() and bind_process() are about this machine; the rest is
// pure. Thread safety: free functions without state.
#pragma once

#include <peal/autograd/core/cores.h>
#include <peal/launch/rank.h>

#include <string>
#include <string_view>
#include <vector>

namespace peal::launch {

// What this process sees of its node.
struct Cores {
  std::vector<int> cpus;  // the hardware threads that the process may run on, ascending
  int allowed = 1;        // the cores those are on
  int machine = 1;  // the cores that the machine, or the container, offers to all ranks together
};

// Reads the affinity of this process (the calling thread) and of process 1, which has all that the
// machine or container offers, and a container's CPU quota (cgroup v2). A number it cannot read is
// 1 at least.
Cores cores();

// The cpus for a rank that a launcher binds: its even share of its node's cores (cpus_by_core()),
// next to one another, and within one NUMA node (cpus_by_numa_node()) for as many ranks as there is
// room for: memory of another one is slower. Empty where that is all of them, or less than one.
std::vector<int> even_share(const std::vector<std::vector<int>>& cores,
                            const std::vector<std::vector<int>>& numa_nodes, int local_rank,
                            int local_world);

// The cpus for a rank beside its GPU, of whose bus the kernel lists some (local_cpulist): of those
// that the process may use, by core, its even share among the `ranks` of its node that have the
// same list, of which it is number `place`. Empty where nothing is listed, all that it may use is
// near and it is the one rank there, or there are more ranks than cores.
std::vector<int> share_near(const std::vector<std::vector<int>>& cores, std::string_view list,
                            int place, int ranks);
// Whether the rank runs where its launcher wants it: that bound it, or is to leave it unbound
// (PEAL_BIND_TO=none).
bool is_placed();
// What the kernel lists for the device of that PCI id ("0000:1b:00.0"); empty where it says
// nothing.
std::string local_cpu_list(const std::string& pci);
// All threads of the process run on these from now on, and so do those that they start. False where
// that is refused.
bool bind_process(const std::vector<int>& cpus);

// Threads that an op should use on a rank: max(1, min(allowed, machine / local_world)). Bound to
// its share a rank uses all of that; unbound it takes no more than its share, so that ranks don't
// crowd each other out.
int intra_op_threads(int allowed, int machine, int local_world);

// One line for the log: rank 0 may use cpus 0-3 (4 of 64 cores), 4 threads an op.
std::string binding_report(const Cores& cores, const Rank& rank, int threads);

// Empty, or a warning with the flags to use, alike for ranks that are bound alike: when a launcher
// bound the rank to at most half of its share of the cores. Alone there is no launcher, and a
// subset (taskset) was meant.
std::string binding_warning(const Cores& cores, const Rank& rank);

}  // namespace peal::launch
