// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/store/tcp_store.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>
#include <utility>

namespace peal::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_guests = 4096;   // who have not said who they are,
constexpr std::size_t most_of_guest = 256;  // in at most so many bytes
constexpr std::chrono::seconds one_attempt{5};

std::string reason() { return std::strerror(errno); }

std::string shown(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port,
              sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  return concat(host, " port ", port);
}

int port_of(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

// TCP may connect a socket that asks for a port in vain with itself.
bool is_its_own_peer(int descriptor) {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  return getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
         own_size == peer_size && std::memcmp(&own, &peer, own_size) == 0;
}

// Every text, its length before it.
std::string join(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += concat(text.size(), ":", text);
  return joined;
}

std::vector<std::string> parted(const std::string& joined, int world) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < joined.size();) {
    const std::size_t colon = joined.find(':', at);
    PEAL_CHECK(colon != std::string::npos, "[store] rank 0 sent what is no list of texts");
    std::size_t size = 0;
    const char* const end = joined.data() + colon;
    const auto read = std::from_chars(joined.data() + at, end, size);
    PEAL_CHECK(read.ec == std::errc{} && read.ptr == end && size <= joined.size() - colon - 1,
               "[store] rank 0 sent what is no list of texts");
    texts.push_back(joined.substr(colon + 1, size));
    at = colon + 1 + size;
  }
  PEAL_CHECK(static_cast<int>(texts.size()) == world, "[store] rank 0 sent ", texts.size(),
             " texts, expected ", world);
  return texts;
}

template <class Connections>
std::vector<Connection*> pointers(const Connections& connections) {
  std::vector<Connection*> found;
  for (const auto& connection : connections) {
    if (connection) found.push_back(connection.get());
  }
  return found;
}

}  // namespace

// Throws where the others have had their time, or one has failed.
class TcpStore::Deadline {
 public:
  explicit Deadline(const TcpStore& store) : store_(store) {}
  template <class Missing>
  void check(const Missing& missing) const {
    store_.patience_.hopeless();
    if (Clock::now() - start_ < store_.patience_.deadline) return;
    fail(concat(store_.who(), " waited ",
                std::chrono::duration<double>(store_.patience_.deadline).count(),
                " s (PEAL_TIMEOUT) for ", missing(), store_.turned_away_));
  }

 private:
  const TcpStore& store_;
  Clock::time_point start_ = Clock::now();
};

TcpStore::TcpStore(std::string host, int port, int rank, int world, Patience patience,
                   std::string run)
    : host_(std::move(host)),
      run_(std::move(run)),
      port_(port),
      rank_(rank),
      world_(world),
      patience_(std::move(patience)) {
  PEAL_CHECK(rank >= 0 && rank < world, "[store] rank ", rank, " of a world of ", world);
  PEAL_CHECK(port >= (rank == 0 ? 0 : 1) && port <= 65535, "[store] the port ", port,
             ": expected 1 to 65535");
  PEAL_CHECK(run_.size() <= most_of_guest, "[store] a run of ", run_.size(),
             " bytes; expected at most ", most_of_guest);
  if (rank_ == 0) listen();
}

std::string TcpStore::who() const {
  return concat("[store] rank ", rank_, " of ", world_, " at ", host_, " port ", port_);
}

void TcpStore::listen() {
  const bool loopback = host_ == "localhost" || host_ == "127.0.0.1" || host_ == "::1";
  // A host's own name may stand for an address that the others do not reach: every device, then.
  std::string problem = "no address to listen at";
  const Addresses addresses(loopback ? host_ : "", port_, true, problem);
  // An IPv6 socket serves IPv4 as well: the rank that connects may know the host by either.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* a = addresses.first(); a != nullptr && !listener_; a = a->ai_next) {
      if (a->ai_family != family) continue;
      Socket socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      const int on = 1, off = 0;
      if (socket) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (socket && family == AF_INET6)
        setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      if (!socket || bind(socket.get(), a->ai_addr, a->ai_addrlen) != 0 ||
          ::listen(socket.get(), SOMAXCONN) != 0) {
        problem = reason();
        continue;
      }
      listener_ = std::move(socket);
    }
  }
  PEAL_CHECK(listener_, who(), " cannot listen: ", problem,
             "; choose a free port, or end the job that has it");
  port_ = port_of(listener_.get());
}

// A guest who said who it is: a rank, or turned away.
bool TcpStore::admit(ConnectionRef& guest, const Frame& said) {
  std::string objection;
  if (said.kind != Frame::hello) {
    objection = "it did not say who it is";
  } else if (said.body != run_) {
    objection = concat("it is of the run '", said.body, "', this is '", run_, "'");
  } else if (said.world != static_cast<std::uint32_t>(world_) || said.rank == 0 ||
             said.rank >= said.world) {
    objection =
        concat("it is rank ", said.rank, " of ", said.world, ", here is a world of ", world_);
  } else if (ranks_[said.rank]) {
    objection = concat("rank ", said.rank, " is here already, as ", ranks_[said.rank]->peer());
  }
  guest->send({.kind = objection.empty() ? Frame::welcome : Frame::refusal, .body = objection});
  guest->pump();
  if (objection.empty()) {
    ranks_[said.rank] = std::move(guest);
    return true;
  }
  turned_away_ = concat("; ", guest->peer(), " was turned away: ", objection);
  guest.reset();
  return false;
}

void TcpStore::accept_ranks() {
  ranks_.resize(static_cast<std::size_t>(world_));
  std::vector<ConnectionRef> guests;
  const Deadline deadline(*this);
  for (int here = 1; here < world_;) {
    wait_any(listener_, pointers(guests));
    for (;;) {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      Socket socket(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) break;
      const int on = 1;
      setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (guests.size() >= most_guests) guests.erase(guests.begin());
      guests.push_back(
          std::make_unique<Connection>(std::move(socket), shown(address, size), most_of_guest));
    }
    for (ConnectionRef& guest : guests) {
      const bool there = guest->pump();
      try {
        if (const auto said = guest->take()) {
          if (admit(guest, *said)) ++here;
        } else if (!there) {
          guest.reset();
        }
      } catch (const Error& error) {  // a stranger
        turned_away_ = concat("; ", error.what());
        guest.reset();
      }
    }
    std::erase(guests, nullptr);
    deadline.check([&] {
      std::string missing;
      for (int r = 1; r < world_; ++r) {
        if (!ranks_[static_cast<std::size_t>(r)])
          missing += concat(missing.empty() ? "rank " : ", ", r);
      }
      return missing + " to connect";
    });
  }
  for (int r = 1; r < world_; ++r) {
    ranks_[static_cast<std::size_t>(r)]->admit(concat("rank ", r), most_store_bytes);
  }
  listener_ = Socket();
}

TcpStore::ConnectionRef TcpStore::try_to_connect(const Deadline& deadline,
                                                 std::string& problem) const {
  const Addresses addresses(host_, port_, false, problem);
  for (const addrinfo* a = addresses.first(); a != nullptr; a = a->ai_next) {
    Socket socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) continue;
    const int on = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int code = ::connect(socket.get(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    pollfd polled{socket.get(), POLLOUT, 0};
    const auto start = Clock::now();
    while (code == EINPROGRESS && Clock::now() - start < one_attempt) {
      deadline.check([&] { return concat("rank 0 (", problem, ")"); });
      if (poll(&polled, 1, 20) <= 0) continue;
      socklen_t size = sizeof code;
      getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &size);
    }
    if (code == 0 && !is_its_own_peer(socket.get())) {
      return std::make_unique<Connection>(
          std::move(socket), "rank 0", (most_store_bytes + 24) * static_cast<std::size_t>(world_));
    }
    problem = code == EINPROGRESS ? "no answer" : std::strerror(code == 0 ? ECONNREFUSED : code);
  }
  return nullptr;
}

void TcpStore::connect() {
  const Deadline deadline(*this);
  std::chrono::milliseconds nap{5};
  std::string problem = "nobody listens there";
  for (;;) {
    if (auto connection = try_to_connect(deadline, problem)) {
      connection->send({.kind = Frame::hello,
                        .rank = static_cast<std::uint32_t>(rank_),
                        .world = static_cast<std::uint32_t>(world_),
                        .body = run_});
      Connection* const one = connection.get();
      for (bool there = true; there;) {
        there = one->pump();
        if (const auto said = one->take()) {
          PEAL_CHECK(said->kind == Frame::welcome, who(), " was turned away: ", said->body,
                     "; start all ranks with one world, address and run, each once");
          ranks_.push_back(std::move(connection));
          return;
        }
        deadline.check([] { return "rank 0 to answer"; });
        if (there) wait_any(Socket(), {&one, 1});
      }
      problem = "it closed the connection without a word";
    }
    deadline.check([&] { return concat("rank 0 (", problem, ")"); });
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, std::chrono::milliseconds(200));
  }
}

// Rank 0: everyone's text, and then all of them to everyone. What goes wrong, all are told.
std::vector<std::string> TcpStore::gather(const std::string& mine) {
  std::vector<std::string> all(static_cast<std::size_t>(world_));
  std::vector<bool> there(static_cast<std::size_t>(world_));
  all[0] = mine;
  const auto settle = [&](const Deadline& deadline, const char* what, const auto& is_over) {
    for (;;) {
      std::string missing;
      for (int r = 1; r < world_; ++r) {
        if (!is_over(r)) missing += concat(missing.empty() ? "rank " : ", ", r);
      }
      if (missing.empty()) return;
      deadline.check([&] { return missing + what; });
      wait_any(Socket(), pointers(ranks_));
    }
  };
  try {
    const Deadline deadline(*this);
    settle(deadline, "'s text", [&](int r) {
      const auto place = static_cast<std::size_t>(r);
      if (there[place]) return true;
      const bool open = ranks_[place]->pump();
      if (auto said = ranks_[place]->take()) {
        PEAL_CHECK(said->kind == Frame::text && said->number == number_, who(), ": rank ", r,
                   " is at exchange ", said->number, ", expected ", number_);
        all[place] = std::move(said->body);
        there[place] = true;
      } else {
        PEAL_CHECK(open, who(), ": rank ", r, " has closed its connection: its process has ended");
      }
      return static_cast<bool>(there[place]);
    });
    const Frame answer{.kind = Frame::all, .number = number_, .body = join(all)};
    for (const auto& rank : ranks_) {
      if (rank) rank->send(answer);
    }
    settle(deadline, " to take the texts", [&](int r) {
      Connection& rank = *ranks_[static_cast<std::size_t>(r)];
      const bool open = rank.pump();
      PEAL_CHECK(open || !rank.sends(), who(), ": rank ", r,
                 " has closed its connection: its process has ended");
      return !rank.sends();
    });
  } catch (const Error& error) {
    for (const auto& rank : ranks_) {
      if (!rank) continue;
      rank->send({.kind = Frame::failure, .body = error.what()});
      rank->pump();
    }
    throw;
  }
  return all;
}

std::vector<std::string> TcpStore::ask(const std::string& mine) {
  Connection& root = *ranks_.front();
  root.send({.kind = Frame::text,
             .rank = static_cast<std::uint32_t>(rank_),
             .number = number_,
             .body = mine});
  const Deadline deadline(*this);
  for (;;) {
    const bool open = root.pump();
    if (const auto said = root.take()) {
      if (said->kind == Frame::failure) fail(said->body);
      PEAL_CHECK(said->kind == Frame::all && said->number == number_, who(),
                 ": rank 0 is at exchange ", said->number, ", expected ", number_);
      return parted(said->body, world_);
    }
    PEAL_CHECK(open, who(), ": rank 0 has closed its connection: its process has ended");
    deadline.check([] { return "rank 0's answer, and what that waits for"; });
    Connection* const one = &root;
    wait_any(Socket(), {&one, 1});
  }
}

std::vector<std::string> TcpStore::exchange(const std::string& mine) {
  PEAL_CHECK(mine.size() <= most_store_bytes, who(), ": a text of ", mine.size(),
             " bytes; expected at most ", most_store_bytes);
  PEAL_CHECK(!failed_, who(), ": an earlier exchange has failed");
  failed_ = true;  // until it has not
  if (number_ == 0) rank_ == 0 ? accept_ranks() : connect();
  auto all = rank_ == 0 ? gather(mine) : ask(mine);
  failed_ = false;
  ++number_;
  return all;
}

}  // namespace peal::comm
