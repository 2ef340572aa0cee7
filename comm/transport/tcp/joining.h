// SPDX-License-Identifier: Apache-2.0
// Joining: how ranks of several nodes get their connections: each listens at a port of the system's
// choice, tells all where, and of each pair one calls the other. All that is done by one loop, so
// nobody waits for who waits for it. Who comes and is not of this job (hello.h) is turned away and
// logged, without a word, and does no harm. Thread safety: one thread.
#pragma once

#include <peal/comm/store/connection.h>
#include <peal/comm/store/rendezvous.h>
#include <peal/comm/store/store.h>
#include <peal/comm/transport/tcp/hello.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace peal::comm {

class Joining {
 public:
  // Collective over all ranks, also those that need no connection. `machine`: one word, equal on
  // ranks of one machine. `everyone` outlives it.
  Joining(Rendezvous& everyone, const std::vector<int>& peers, const std::string& machine,
          const std::string& secret);
  // Until there is a connection to each of the peers. Error that names those that did not come, one
  // that came and is gone, or is as `everyone` knows, as soon as it is, and where descriptors run
  // out.
  void meet(const Patience& patience);

  struct Joined {
    Socket socket{};
    std::string who{};  // "rank 3 (node7, 10.0.0.4 port 4242)"
  };
  std::map<int, Joined> joined;

 private:
  using Clock = std::chrono::steady_clock;
  struct Call {  // to who is to be called
    std::string host{};
    int port = 0;
    std::vector<std::string> addresses{};
    std::size_t at = 0;  // of them, the one that is tried
    Socket socket{};
    bool connected = false;
    TcpHello hello{};
    std::string heard{}, problem{};
    Clock::time_point since{};  // or when to try again
  };
  struct Guest {
    Socket socket;
    std::string where, heard{};
    Clock::time_point since{};
    int rank = -1;  // that was welcomed
  };
  void listen();
  bool calls(int peer) const;
  void accept_guests();
  void hear_guests();
  bool due(int peer) const;
  bool stays(Guest& guest);
  void go_on(int peer, Call& call);
  void begin(int peer, Call& call);
  void drop(Call& call, const std::string& problem);
  void let_in(int peer, Socket socket, const std::string& where);
  [[noreturn]] void fail_starved(int code) const;
  void turn_away(const std::string& where, const std::string& why);
  void check_joined() const;
  std::string missing() const;  // in words
  [[noreturn]] void refuse(const Patience& patience) const;

  Rendezvous& everyone_;
  int rank_, world_, port_ = 0;
  std::vector<std::string> hosts_;  // by rank
  std::vector<int> missing_;
  std::string key_;
  Socket listener_;
  std::map<int, Call> calls_;
  std::vector<Guest> guests_;
  bool starved_ = false;  // no descriptor for who stands at the listener
  int strangers_ = 0;
};

}  // namespace peal::comm
