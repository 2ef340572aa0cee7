// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads, each with a mailroom of its own as if it were a process, over lines of
// each kind.
#pragma once

#include <peal/comm/group/group_body.h>
#include <peal/comm/store/part_of_rendezvous.h>
#include <peal/comm/transport/mail/mail_transport.h>
#include <peal/comm/transport/shm/ring_line.h>
#include <peal/comm/transport/tcp/joining.h>
#include <peal/comm/transport/tcp/tcp_line.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "store_ranks.h"

namespace peal::testing {

enum class Lines { rings, tcp, both };
inline constexpr Lines all_lines[] = {Lines::rings, Lines::tcp, Lines::both};

// `both`: two ranks on each node.
inline comm::Topology nodes_for(Lines kind, int world) {
  comm::Topology nodes;
  for (int rank = 0; rank < world; ++rank) {
    const int of_two = kind == Lines::both ? rank / 2 : 0;
    nodes.node.push_back(kind == Lines::tcp ? rank : of_two);
  }
  return nodes;
}

// Collective.
inline std::shared_ptr<comm::Mailroom> open_mailroom(Rendezvous& ranks, Lines kind,
                                                     const std::string& secret = {}) {
  const int rank = ranks.rank(), world = ranks.world();
  const auto node = nodes_for(kind, world).node;
  std::vector<int> here, elsewhere;
  for (int peer = 0; peer < world; ++peer) {
    const bool same = node[static_cast<std::size_t>(peer)] == node[static_cast<std::size_t>(rank)];
    (same ? here : elsewhere).push_back(peer);
  }
  std::vector<std::unique_ptr<comm::Line>> lines(static_cast<std::size_t>(world));
  comm::PartOfRendezvous neighbours(ranks, here);
  auto rings = comm::ring_lines(neighbours, here);
  for (std::size_t i = 0; i < here.size(); ++i) {
    lines[static_cast<std::size_t>(here[i])] = std::move(rings[i]);
  }
  comm::Joining joining(ranks, elsewhere, "machine", secret);
  joining.meet({.deadline = milliseconds(60'000)});
  const auto watch = std::make_shared<comm::TcpWatch>();
  for (auto& [peer, joined] : joining.joined) {
    auto line = std::make_unique<comm::TcpLine>(peer, joined.who, joined.socket.release());
    watch->add(*line);
    lines[static_cast<std::size_t>(peer)] = std::move(line);
  }
  return std::make_shared<comm::Mailroom>(rank, std::move(lines), [watch] { watch->ask(); });
}

// f(group) on each rank; what each threw. Boards are one for all ranks, or one for each node.
inline std::vector<std::string> on_mailrooms(
    Lines kind, int world, const comm::ProcessGroup::Options& options,
    const std::function<void(const comm::ProcessGroup&)>& f, bool one_board = true) {
  const Folder folder;
  const comm::Topology nodes = nodes_for(kind, world);
  std::vector<std::shared_ptr<comm::Board>> boards;
  for (int node = 0; node < world; ++node) {
    boards.push_back(node > 0 && one_board ? boards[0] : comm::Board::in_memory(world));
  }
  const Maker store = files_in(folder.path / "store");
  return on_ranks(world, [&](int rank) {
    const int node = nodes.node[static_cast<std::size_t>(rank)];
    const auto& board = boards[static_cast<std::size_t>(node)];
    std::vector<int> here;
    for (int peer = 0; peer < world; ++peer) {
      const bool same = nodes.node[static_cast<std::size_t>(peer)] == node;
      if (one_board || same) here.push_back(peer);
    }
    const auto ranks = store(rank, world);
    auto transport = std::make_unique<comm::MailTransport>(open_mailroom(*ranks, kind),
                                                           kind == Lines::rings ? "shm" : "tcp");
    auto control = std::make_unique<comm::Control>(board, rank, here, std::vector<comm::Peer>{});
    try {
      const comm::ProcessGroup group =
          comm::make_group(std::move(transport), std::move(control),
                           std::make_shared<comm::Engine>(true), options, nodes);
      try {
        f(group);
        group.barrier().wait();
      } catch (const std::exception& error) {
        group.poison(error.what());
        throw;
      }
    } catch (const std::exception& error) {
      board->poison(error.what());
      throw;
    }
  });
}

}  // namespace peal::testing
