// SPDX-License-Identifier: Apache-2.0
// Neighbours: what processes that are about to be a group tell each other first: who is on which
// node, which processes those of this one's are, to watch them, and whether they have a core each.
// Thread safety: meet() as its rendezvous; engine_of_this_process() any thread.
#pragma once

#include <peal/comm/control/control.h>
#include <peal/comm/engine/engine.h>
#include <peal/comm/schedule/schedule.h>
#include <peal/comm/store/rendezvous.h>

#include <memory>
#include <vector>

namespace peal::comm {

struct Neighbours {
  Topology nodes{};
  std::vector<int> here{};        // the ranks of this node, ascending
  std::vector<Peer> processes{};  // those of them that can be watched from here
  bool crowded = false;           // the ranks of this machine have no core each
};
// Collective.
Neighbours meet(Rendezvous& everyone);

// All groups of a process advance together, or two ranks that wait for two groups in different
// orders would wait for ever. A child by fork has one of its own.
std::shared_ptr<Engine> engine_of_this_process(bool crowded);
// Null where there is none.
std::shared_ptr<Engine> engine_of_this_process();

}  // namespace peal::comm
