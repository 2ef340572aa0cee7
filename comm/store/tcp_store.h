// SPDX-License-Identifier: Apache-2.0
// TcpStore: a Store over TCP. Rank 0 listens at an address that all know; the others connect, again
// and again until it is there. Texts go to rank 0, and from there to all.
//
// The ranks meet in the first exchange, and then rank 0 listens no more. Whoever comes meanwhile
// and is not a rank of this job (a port scanner, another program, a rank of another world or run, a
// second process of one rank) is turned away, peal's own with the reason, and does no harm. Who
// waits in vain says whom for, and who was turned away. There is no encryption and no proof of
// identity: it is for networks whose members trust one another, as MPI and NCCL are.
// Thread safety: as Store.
#pragma once

#include <peal/comm/store/connection.h>
#include <peal/comm/store/store.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace peal::comm {

class TcpStore : public Store {
 public:
  // Rank 0 listens as soon as this is made: on the loopback device alone where the host is
  // "localhost", "127.0.0.1" or "::1", else on every device. Port 0 is for it to choose (port()
  // says which). `run` (256 bytes at most) is equal on all ranks, and differs from other jobs'
  // that could have the port. Error where the port is taken.
  TcpStore(std::string host, int port, int rank, int world, Patience patience = {},
           std::string run = {});
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  int port() const { return port_; }
  std::vector<std::string> exchange(const std::string& mine) override;

 private:
  using ConnectionRef = std::unique_ptr<Connection>;
  class Deadline;
  void listen();
  void accept_ranks();
  bool admit(ConnectionRef& guest, const Frame& said);
  void connect();
  ConnectionRef try_to_connect(const Deadline& deadline, std::string& problem) const;
  std::vector<std::string> gather(const std::string& mine);
  std::vector<std::string> ask(const std::string& mine);
  std::string who() const;

  std::string host_, run_;
  int port_, rank_, world_;
  Patience patience_;
  Socket listener_;
  std::vector<ConnectionRef> ranks_;  // of rank 0: by rank; of the others: rank 0's alone
  std::string turned_away_;           // who was, and why
  std::uint32_t number_ = 0;          // of the exchange
  bool failed_ = false;
};

}  // namespace peal::comm
