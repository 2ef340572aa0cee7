// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/log.h>
#include <peal/autograd/core/lone_ranks.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/neighbours.h>
#include <peal/comm/start/node.h>
#include <peal/comm/start/processes.h>
#include <peal/comm/store/part_of_rendezvous.h>
#include <peal/comm/transport/mail/mail_transport.h>
#include <peal/comm/transport/shm/ring_line.h>
#include <peal/comm/transport/tcp/joining.h>
#include <peal/comm/transport/tcp/tcp_line.h>

#include <algorithm>
#include <utility>

namespace peal::comm {
namespace {

// Of the ranks of a node: memory that they share. Without it ranks of a job on several nodes go on,
// by messages over the network.
struct Shared {
  std::shared_ptr<Board> board;
  std::vector<int> here;                       // whom the board carries
  std::vector<std::unique_ptr<Line>> lines{};  // by their place on the node
};

Shared share(Rendezvous& ranks, const Neighbours& met, bool several_nodes) {
  const int world = ranks.world();
  Shared shared{Board::in_memory(world), {ranks.rank()}};
  if (world == 1) return shared;
  PartOfRendezvous neighbours(ranks, met.here);
  // Each is asked for whatever became of the other, for other nodes may have both.
  std::string problem;
  try {
    shared.board = Board::shared(neighbours, world, met.here);
    shared.here = met.here;
  } catch (const NoSharedMemory& error) {
    problem = error.what();
  }
  try {
    shared.lines = ring_lines(neighbours, met.here);
  } catch (const NoSharedMemory& error) {
    problem = error.what();
  }
  if (problem.empty()) return shared;
  if (!several_nodes) throw NoSharedMemory(problem);
  log_warning(problem, "; going on, but by messages over the network");
  return shared;
}

}  // namespace

ProcessGroup processes_group(Rendezvous& ranks, const ProcessGroup::Options& options,
                             const std::string& secret) {
  ranks_are_joined();
  Neighbours met = meet(ranks);
  const int rank = ranks.rank(), world = ranks.world();
  const auto& nodes = met.nodes.node;
  const bool several_nodes = std::ranges::any_of(nodes, [&](int node) { return node != nodes[0]; });
  Shared shared = share(ranks, met, several_nodes);

  std::vector<std::unique_ptr<Line>> lines(static_cast<std::size_t>(world));
  for (std::size_t i = 0; i < shared.lines.size(); ++i) {
    lines[static_cast<std::size_t>(met.here[i])] = std::move(shared.lines[i]);
  }
  auto& itself = lines[static_cast<std::size_t>(rank)];
  if (!itself) itself = ring_to_itself(rank);
  std::vector<int> elsewhere;
  for (int peer = 0; peer < world; ++peer) {
    if (!lines[static_cast<std::size_t>(peer)]) elsewhere.push_back(peer);
  }
  auto control = std::make_unique<Control>(std::move(shared.board), rank, std::move(shared.here),
                                           met.processes);
  std::function<void()> ask;
  if (several_nodes) {
    Joining joining(ranks, elsewhere, machine_identity(), secret);
    joining.meet({.deadline = options.deadline, .hopeless = [&] { control->check(); }});
    const auto watch = std::make_shared<TcpWatch>();
    for (auto& [peer, joined] : joining.joined) {
      auto line = std::make_unique<TcpLine>(peer, std::move(joined.who), joined.socket.release());
      watch->add(*line);
      lines[static_cast<std::size_t>(peer)] = std::move(line);
    }
    ask = [watch] { watch->ask(); };
  }
  auto transport = std::make_unique<MailTransport>(
      std::make_shared<Mailroom>(rank, std::move(lines), std::move(ask)),
      several_nodes ? "tcp" : "shm");
  return make_group(std::move(transport), std::move(control), engine_of_this_process(met.crowded),
                    options, std::move(met.nodes));
}

}  // namespace peal::comm
