// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cores.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/fork.h>
#include <peal/comm/start/neighbours.h>
#include <peal/comm/start/node.h>

#include <unistd.h>

#include <limits>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>

namespace peal::comm {

Neighbours meet(Rendezvous& everyone) {
  Neighbours met;
  const std::string node = node_identity(), machine = machine_identity(), quota = quota_identity();
  std::vector<std::vector<int>> cpus, with_this_quota;
  std::vector<std::string> nodes;
  for (const std::string& entry :
       everyone.exchange(concat(machine, " ", quota, " ", node, " ", getpid(), " ", pid_namespace(),
                                " ", cpu_list(allowed_cpus())))) {
    std::istringstream words(entry);
    Peer peer{};
    std::string on, within, where, space, may_use;
    words >> on >> within >> where >> peer.pid >> space >> may_use;
    peer.rank = static_cast<int>(nodes.size());
    nodes.push_back(where);
    if (on == machine) cpus.push_back(parse_cpu_list(may_use));
    if (on == machine && within == quota) with_this_quota.push_back(cpus.back());
    if (where != node) continue;
    met.here.push_back(peer.rank);
    if (space == pid_namespace()) met.processes.push_back(peer);
  }
  met.nodes = topology_of(nodes);
  constexpr int none = std::numeric_limits<int>::max();
  met.crowded = crowded(cpus, none) || crowded(with_this_quota, cpu_quota());
  return met;
}

namespace {

struct {
  std::mutex mutex;
  std::weak_ptr<Engine> engine;
  ForkMark mark;
} kept;

// REQUIRES: its lock.
std::shared_ptr<Engine> own_engine() {
  return kept.mark.inherited() ? nullptr : kept.engine.lock();
}

}  // namespace

std::shared_ptr<Engine> engine_of_this_process() {
  const std::lock_guard lock(kept.mutex);
  return own_engine();
}

std::shared_ptr<Engine> engine_of_this_process(bool crowded) {
  const std::lock_guard lock(kept.mutex);
  auto engine = own_engine();
  if (!engine) {
    kept.engine = engine = std::make_shared<Engine>(crowded);
    kept.mark = ForkMark();
  }
  return engine;
}

}  // namespace peal::comm
