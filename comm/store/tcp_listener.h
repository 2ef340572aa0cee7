// SPDX-License-Identifier: Apache-2.0
// TcpListener: the port at which the ranks of a TcpStore come to rank 0, and who is let in.
//
// Whoever comes and is not a rank of this job (a port scanner, another program, a rank of another
// world or run, a second process of one rank, one that does not know the secret) is turned away
// and logged, and does no harm; where descriptors run out, those who do not say who they are go
// first. Nobody is told what it should have said.
//
// The handshake: a rank says who it is, of which run, and where it has a secret a nonce; rank 0
// answers with a nonce of its own; the rank sends its proof (proof_of_rank()) and gets rank 0's,
// in which the ends have changed places. Nothing here waits.
//
// Jobs that name no run and have no secret look alike. Where two of them meet at one port, a rank
// comes twice, or a second rank 0: then nobody knows whose ranks are here, and all are told. Such a
// listener stays for some seconds after all have come, for the others of a job that was mixed up
// come as late as that. Thread safety: one thread at a time.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/comm/store/connection.h>

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace peal::comm {

// Who says hello, and what both ends have drawn.
struct Hello {
  std::uint32_t rank = 0, world = 0;
  std::string run{}, nonce{};  // no nonce: it has no secret
};
Frame frame_of(const Hello& hello);
// That one knows the secret: the rank, and rank 0.
std::string proof_of_rank(const std::string& secret, const Hello& hello, const std::string& nonce);
std::string proof_of_root(const std::string& secret, const Hello& hello, const std::string& nonce);

// Another process listens at the port.
class PortTaken : public Error {
 public:
  using Error::Error;
};

class TcpListener {
 public:
  // Listens at the port, or at one of its choice where that is 0: at one address where the host is
  // a numeric one or localhost, else at every one, and says so where there is no secret. PortTaken,
  // or another Error where the address is none of this machine's.
  TcpListener(const std::string& host, int port, int world, std::string run, std::string secret);
  int port() const { return port_; }
  // "[store] rank 0 of 4 at host port 4242", for errors.
  const std::string& where() const { return where_; }

  struct Arrival {
    std::size_t rank;
    std::unique_ptr<Connection> connection;
  };
  // Ranks that were let in just now. Error, once, where descriptors run out; it has closed then.
  std::vector<Arrival> arrivals();
  // Until all have come, and for a while after.
  bool open() const { return static_cast<bool>(socket_); }
  // A rank that has come has said goodbye. Where it comes again, it looks for the next store at
  // this port, which is not yet there.
  void leaves(std::size_t rank);
  // How two jobs have met here; empty where none have.
  const std::string& crossing() const { return crossing_; }
  // When arrivals() has something to do without anything to poll for; nothing: never.
  std::optional<std::chrono::steady_clock::time_point> next_look() const;
  // Adds what to poll for.
  void look_at(std::vector<pollfd>& polled) const;
  // Who was the last to be turned away, and why; or nothing.
  const std::string& turned_away() const { return turned_away_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Guest {  // has not shown that it is a rank
    std::unique_ptr<Connection> connection;
    Clock::time_point since;
    Hello said{};         // once it has
    std::string nonce{};  // that it was sent then
    bool again = false;   // its rank has come before; that one's goodbye may be on its way
  };
  void listen(const std::string& host, int port);
  void accept_guests();
  // True where it is a rank, and let in.
  bool hear(Guest& guest, const Frame& frame);
  std::string objection_to(const Hello& hello) const;
  std::string met_twice(std::uint32_t rank);
  void judge(Guest& guest);
  void turn_away(Guest& guest, const std::string& why, const std::string& told = {});
  void log_stranger(const std::string& who);
  void close();

  std::string run_, secret_, where_;
  int port_ = 0;
  Socket socket_;
  std::vector<Guest> guests_;
  std::vector<std::string> came_;  // from where; empty: not yet
  std::vector<bool> left_;
  std::size_t missing_;
  std::string turned_away_, crossing_;
  Clock::time_point all_came_{};
  int strangers_ = 0;
  bool starved_ = false;  // there is no descriptor for who waits to be let in
};

}  // namespace peal::comm
