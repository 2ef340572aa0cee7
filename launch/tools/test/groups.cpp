// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/group/group_rendezvous.h>
#include <peal/comm/start/processes.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/tools/test/checks.h>

#include <cstdlib>

namespace peal::launch {
namespace {

using comm::ProcessGroup;

// The other ranks wait.
std::string between_threads(Job& job) {
  std::string seen;
  rank0_first(job.group(), [&] {
    if (!job.is_main()) return;
    comm::run_ranks(job.world(), [&](const ProcessGroup& group) {
      std::string mine = check_collectives(group);
      if (group.rank() == 0) seen = std::move(mine);
    });
  });
  return seen;
}

// As if each rank were on a node of its own, where that is said.
std::string between_processes(Job& job, bool shared_memory, bool own_nodes) {
  ProcessGroup::Options options = ProcessGroup::Options::from_environment();
  options.shared_memory = shared_memory;
  comm::GroupRendezvous ranks(job.group());
  const char* const before = std::getenv("PEAL_NODE");
  const std::string node = before != nullptr ? before : "";
  if (own_nodes) setenv("PEAL_NODE", concat("test-", job.rank()).c_str(), 1);
  const ProcessGroup group = comm::processes_group(ranks, options);
  if (own_nodes && before == nullptr) unsetenv("PEAL_NODE");
  if (own_nodes && before != nullptr) setenv("PEAL_NODE", node.c_str(), 1);
  std::string seen = check_collectives(group);
  job.group().barrier().wait();  // nobody lets go of it before
  return seen;
}

}  // namespace

std::vector<Check> collectives_over_each(const Job& job) {
  std::vector<Check> all{{"between threads", between_threads}};
  const auto& nodes = job.group().nodes().node;
  bool one_node = true;
  for (const int node : nodes) one_node = one_node && node == nodes[0];
  const auto add = [&](const char* name, bool shared_memory, bool own_nodes) {
    all.push_back(
        {name, [=](Job& ranks) { return between_processes(ranks, shared_memory, own_nodes); }});
  };
  if (job.world() > 1 && one_node) {
    add("in shared memory", true, false);
    add("by messages in memory", false, false);
    add("over TCP", true, true);
  } else if (job.world() > 1) {
    add("over the network", true, false);
  }
  return all;
}

}  // namespace peal::launch
