// SPDX-License-Identifier: Apache-2.0
// TcpStore: a store over TCP. Rank 0 has the values and serves them (tcp_server.h), at an address
// that all know; the others connect, again and again until it is there, when they make their first
// call. Rank 0's store goes last: what the others ask then is an error.
//
// `run` tells jobs apart, and keeps out who does not know it; no stranger is told it, but it
// travels in the clear, as everything does: this is for networks whose members trust one another,
// as MPI and NCCL are. Thread safety: as Store.
#pragma once

#include <peal/comm/store/connection.h>
#include <peal/comm/store/store.h>
#include <peal/comm/store/tcp_server.h>

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
  ~TcpStore() override;
  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;
  int port() const { return port_; }

  void set(const std::string& key, const std::string& value) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  void remove(const std::vector<std::string>& keys) override;

 private:
  class Deadline;
  void connect();
  std::unique_ptr<Connection> try_to_connect(const Deadline& deadline, std::string& problem) const;
  // Rank 0's answer to a request.
  std::string ask(Frame::Kind kind, const std::vector<std::string>& words);
  void check_size(const std::string& key, const std::string& value) const;
  std::string who() const;

  std::string host_, run_;
  int port_, rank_, world_;
  Patience patience_;
  std::unique_ptr<TcpServer> server_;  // of rank 0
  std::unique_ptr<Connection> root_;   // of the others, once they are connected
  std::uint32_t number_ = 0;           // of the request
  bool failed_ = false;
};

}  // namespace peal::comm
