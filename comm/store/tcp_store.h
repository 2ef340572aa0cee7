// SPDX-License-Identifier: Apache-2.0
// TcpStore: a store over TCP. Rank 0 has the values and serves them (tcp_server.h), at an address
// that all know; the others connect, again and again until it is there, when they make their first
// call. Rank 0's store goes last: what the others ask then is an error. A store that an exception
// takes along says no goodbye: to the others its rank is gone, as where its process has died.
//
// `run` tells jobs apart; no stranger is told it, but it travels in the clear. A `secret` does not:
// each end shows the other that it knows it (HMAC-SHA256 over what both have drawn), so that nobody
// else is a rank, or plays rank 0 at its port. What follows is neither hidden nor signed: who can
// read and write the network's packets can take part, as with MPI and NCCL.
//
// Two jobs that meet at one port, and neither name a run nor have a secret, may take each other's
// ranks for their own. So where a rank comes twice, or a second rank 0, until some seconds after
// all have come, the store fails on all ranks.
//
// A child by fork() has no store: what it calls is an Error there, and its end says nothing to
// anybody. Thread safety: as Store.
#pragma once

#include <peal/autograd/core/fork.h>
#include <peal/comm/store/connection.h>
#include <peal/comm/store/store.h>
#include <peal/comm/store/tcp_server.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace peal::comm {

class TcpStore : public Store {
 public:
  // Rank 0 listens as soon as this is made: at the host's address alone where it is given as one
  // ("10.0.0.4", "::1") or is "localhost", else, for a name, on every device. Port 0 is for it to
  // choose (port() says which). `run` (256 bytes at most) is equal on all ranks, and differs from
  // other jobs' that could have the port. So is `secret`, of any length, best of 128 random bits;
  // none where it is empty. Error where the port is taken; a job like this one that has it fails
  // too.
  TcpStore(std::string host, int port, int rank, int world, Patience patience = {},
           std::string run = {}, std::string secret = {});
  ~TcpStore() override;
  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;
  int port() const { return port_; }
  // On rank 0: f(what has happened), once, on another thread, where two jobs have met here.
  void at_crossing(std::function<void(const std::string&)> f);

  void set(const std::string& key, const std::string& value) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  void remove(const std::vector<std::string>& keys) override;
  void check() override;

 private:
  class Deadline;
  void connect();
  std::unique_ptr<Connection> try_to_connect(const Deadline& deadline, std::string& problem) const;
  bool introduce(Connection& connection, const Deadline& deadline) const;
  void tell_who_has_the_port() const;
  // Rank 0's answer to a request.
  std::string ask(Frame::Kind kind, const std::vector<std::string>& words);
  void check_open(bool open) const;
  void check_size(const std::string& key, const std::string& value) const;
  void refuse_inherited() const;
  std::string who() const;

  std::string host_, run_, secret_;
  int port_, rank_, world_;
  Patience patience_;
  std::unique_ptr<TcpServer> server_;  // of rank 0
  std::unique_ptr<Connection> root_;   // of the others, once they are connected
  std::uint32_t number_ = 0;           // of the request
  bool failed_ = false;
  ForkMark mark_;
  int unwinding_ = std::uncaught_exceptions();  // at its beginning
};

}  // namespace peal::comm
