// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/lone_ranks.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/neighbours.h>
#include <peal/comm/start/processes.h>
#include <peal/comm/transport/shm/shm.h>

#include <algorithm>
#include <utility>

namespace peal::comm {

ProcessGroup processes_group(Rendezvous& ranks, const ProcessGroup::Options& options) {
  ranks_are_joined();
  Neighbours met = meet(ranks);
  const auto& nodes = met.nodes.node;
  const auto elsewhere = std::ranges::find_if(nodes, [&](int node) { return node != nodes[0]; });
  PEAL_CHECK(elsewhere == nodes.end(), "[comm] rank ", ranks.rank(), ": rank ",
             elsewhere - nodes.begin(),
             " is on another node than rank 0, or sees another "
             "/dev/shm: such ranks share no memory; start them with mpirun");
  auto board =
      ranks.world() > 1 ? Board::shared(ranks, ranks.world()) : Board::in_memory(ranks.world());
  auto transport = std::make_unique<ShmTransport>(Mailroom::open(ranks));
  auto control =
      std::make_unique<Control>(std::move(board), ranks.rank(), std::move(met.here), met.processes);
  return make_group(std::move(transport), std::move(control), engine_of_this_process(met.crowded),
                    options, std::move(met.nodes));
}

}  // namespace peal::comm
