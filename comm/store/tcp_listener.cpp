// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/store/hmac.h>
#include <peal/comm/store/tcp_listener.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace peal::comm {
namespace {

constexpr std::size_t most_guests = 4096;               // who have not shown that they are ranks,
constexpr std::size_t most_of_guest = 512;              // in at most so many bytes
constexpr int most_logged = 20;                         // strangers
constexpr std::chrono::seconds longest_silence{2};      // of a guest, where descriptors run out
constexpr std::chrono::milliseconds between_tries{20};  // until there may be descriptors again
constexpr std::chrono::seconds mixed_up_for{10};        // jobs of one start

std::string reason() { return std::strerror(errno); }

// An address, not a name for one.
bool is_numeric(const std::string& host) {
  const std::string address = host.substr(0, host.find('%'));  // without the device: fe80::1%eth0
  in6_addr room{};
  return inet_pton(AF_INET, address.c_str(), &room) == 1 ||
         inet_pton(AF_INET6, address.c_str(), &room) == 1;
}

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

std::string proof(const char* whose, const std::string& secret, const Hello& hello,
                  const std::string& nonce) {
  return hmac_sha256(secret, join({whose, hello.nonce, nonce, concat(hello.rank),
                                   concat(hello.world), hello.run}));
}

}  // namespace

Frame frame_of(const Hello& hello) {
  return {.kind = Frame::hello,
          .rank = hello.rank,
          .world = hello.world,
          .body = join({hello.run, hello.nonce})};
}

std::string proof_of_rank(const std::string& secret, const Hello& hello, const std::string& nonce) {
  return proof("rank", secret, hello, nonce);
}

std::string proof_of_root(const std::string& secret, const Hello& hello, const std::string& nonce) {
  return proof("root", secret, hello, nonce);
}

TcpListener::TcpListener(const std::string& host, int port, int world, std::string run,
                         std::string secret)
    : run_(std::move(run)),
      secret_(std::move(secret)),
      came_(static_cast<std::size_t>(world)),
      left_(came_.size()),
      missing_(came_.size() - 1) {
  where_ = concat("[store] rank 0 of ", world, " at ", host, " port ", port);
  listen(host, port);
  where_ = concat("[store] rank 0 of ", world, " at ", host, " port ", port_);
}

void TcpListener::listen(const std::string& host, int port) {
  // A host's own name may stand for an address that the others do not reach: every device, then.
  const bool every = host != "localhost" && !is_numeric(host);
  if (every && secret_.empty() && came_.size() > 1) {
    log_warning(
        where_,
        " listens on all devices of this machine, and without a secret: whoever reaches the "
        "port can be a rank; set PEAL_STORE_SECRET on all ranks, or name an address "
        "(MASTER_ADDR) in place of a host");
  }
  bool taken = false;
  std::string problem = "no address to listen at";
  const Addresses addresses(every ? "" : host, port, true, problem);
  // An IPv6 socket serves IPv4 as well: the rank that connects may know the host by either.
  for (const int family : {AF_INET6, AF_INET}) {
    // At another address than the one that is taken the others would not look for it.
    for (const addrinfo* a = addresses.first(); a != nullptr && !socket_ && !taken;
         a = a->ai_next) {
      if (a->ai_family != family) continue;
      Socket socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      const int on = 1, off = 0;
      if (socket) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (socket && family == AF_INET6)
        setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      if (!socket || bind(socket.get(), a->ai_addr, a->ai_addrlen) != 0 ||
          ::listen(socket.get(), SOMAXCONN) != 0) {
        taken = errno == EADDRINUSE;
        problem = errno == EADDRNOTAVAIL
                      ? "this machine has no such address; name one that it has, or the machine, "
                        "to listen on all its devices"
                      : reason();
        continue;
      }
      socket_ = std::move(socket);
    }
  }
  if (!socket_) {
    const std::string message = concat(where_, " cannot listen: ", problem,
                                       "; choose a free port (MASTER_PORT), or end the job that "
                                       "has it");
    if (taken) throw PortTaken(message);
    fail(message);
  }
  port_ = port_of(socket_.get());
}

void TcpListener::close() {
  socket_ = Socket();
  guests_.clear();
}

void TcpListener::look_at(std::vector<pollfd>& polled) const {
  if (open() && !starved_) polled.push_back({socket_.get(), POLLIN, 0});
  for (const Guest& guest : guests_) polled.push_back(guest.connection->polled());
}

std::optional<TcpListener::Clock::time_point> TcpListener::next_look() const {
  if (!open()) return std::nullopt;
  if (std::ranges::any_of(guests_, &Guest::again)) return Clock::now();
  if (starved_) return Clock::now() + between_tries;
  if (missing_ == 0) return all_came_ + mixed_up_for;
  return std::nullopt;
}

void TcpListener::accept_guests() {
  starved_ = false;
  for (;;) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    Socket socket(accept4(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size,
                          SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
      const std::string problem = reason();
      // Strangers may hold what ranks need.
      starved_ = true;
      const auto now = Clock::now();
      std::erase_if(guests_,
                    [&](const Guest& guest) { return now - guest.since > longest_silence; });
      if (!guests_.empty()) return;
      close();
      fail(concat(where_, " can take no more connections with ", came_.size() - missing_, " of ",
                  came_.size(), " ranks there: ", problem,
                  "; raise the limit of open files (ulimit -n) to ", came_.size() + 64,
                  " at least"));
    }
    if (!socket) return;
    keep_alive(socket);
    if (guests_.size() >= most_guests) guests_.erase(guests_.begin());
    guests_.push_back(
        {std::make_unique<Connection>(std::move(socket), shown(address, size), most_of_guest),
         Clock::now()});
  }
}

std::vector<TcpListener::Arrival> TcpListener::arrivals() {
  std::vector<Arrival> arrived;
  if (!open()) return arrived;
  accept_guests();
  for (Guest& guest : guests_) {
    if (guest.again) {  // the ranks have been heard since
      judge(guest);
      continue;
    }
    const bool there = guest.connection->pump();
    try {
      while (guest.connection && !guest.again) {
        const auto frame = guest.connection->take();
        if (!frame && !there) guest.connection.reset();
        if (!frame) break;
        if (hear(guest, *frame)) arrived.push_back({guest.said.rank, std::move(guest.connection)});
      }
    } catch (const Error& error) {  // it speaks as no rank does
      log_stranger(error.what());
      guest.connection.reset();
    }
  }
  std::erase_if(guests_, [](const Guest& guest) { return !guest.connection; });
  if (missing_ > 0) return arrived;
  if (all_came_ == Clock::time_point{}) all_came_ = Clock::now();
  const bool named = !run_.empty() || !secret_.empty() || came_.size() == 1;
  if (named || Clock::now() >= all_came_ + mixed_up_for) close();
  return arrived;
}

std::string TcpListener::objection_to(const Hello& hello) const {
  if (hello.run != run_) return concat("it is of the run '", hello.run, "', this is '", run_, "'");
  if (hello.world != came_.size() || hello.rank >= hello.world) {
    return concat("it is rank ", hello.rank, " of ", hello.world, ", here is a world of ",
                  came_.size());
  }
  if (!secret_.empty() && hello.nonce.empty()) {
    return "it has no secret (PEAL_STORE_SECRET), and this store has one";
  }
  if (secret_.empty() && !hello.nonce.empty()) {
    return "it has a secret (PEAL_STORE_SECRET), and this store has none";
  }
  return {};
}

bool TcpListener::hear(Guest& guest, const Frame& frame) {
  const bool introduced = !guest.nonce.empty();
  if (frame.kind != (introduced ? Frame::proof : Frame::hello)) {
    turn_away(guest, "it did not say who it is");
    return false;
  }
  Hello& hello = guest.said;
  if (!introduced) {
    auto words = parted(frame.body);
    PEAL_CHECK(words.size() == 2, "[store] ", guest.connection->peer(), " said ", words.size(),
               " words of itself; expected 2");
    hello = {frame.rank, frame.world, std::move(words[0]), std::move(words[1])};
    std::string objection = objection_to(hello);
    if (objection.empty() && hello.rank == 0) objection = met_twice(0);
    if (!objection.empty()) {
      const bool other_run = hello.run != run_;
      turn_away(guest, objection,
                other_run ? concat("it is of the run '", hello.run, "', which this is not") : "");
      return false;
    }
  }
  Frame welcome{.kind = Frame::welcome};
  if (!secret_.empty()) {
    if (!introduced) {
      guest.nonce = nonce();
      guest.connection->send({.kind = Frame::challenge, .body = guest.nonce});
      guest.connection->pump();
      return false;
    }
    if (!equal_proofs(frame.body, proof_of_rank(secret_, hello, guest.nonce))) {
      turn_away(guest, concat("it came as rank ", hello.rank,
                              ", and its secret (PEAL_STORE_SECRET) is another"));
      return false;
    }
    welcome.body = proof_of_root(secret_, hello, guest.nonce);
  }
  guest.again = !came_[hello.rank].empty();
  if (guest.again) return false;
  guest.connection->send(welcome);
  guest.connection->pump();
  came_[hello.rank] = guest.connection->peer();
  --missing_;
  return true;
}

void TcpListener::leaves(std::size_t rank) {
  left_[rank] = true;
  if (std::ranges::count(left_, false) == 1) close();  // rank 0's own
}

void TcpListener::judge(Guest& guest) {
  if (left_[guest.said.rank]) return guest.connection.reset();
  turn_away(guest, met_twice(guest.said.rank));
}

// A second one of its rank.
std::string TcpListener::met_twice(std::uint32_t rank) {
  if (!run_.empty() || !secret_.empty()) {
    return concat("rank ", rank, " is here already",
                  rank == 0 ? std::string() : concat(", from ", came_[rank]));
  }
  const std::string what =
      concat("two processes are rank ", rank, " of ", came_.size(), " at port ", port_,
             ", so two jobs have met there, and their ranks look alike; give each job a port "
             "(MASTER_PORT), a run (TORCHELASTIC_RUN_ID, or tcp://HOST:PORT/RUN) or a secret "
             "(PEAL_STORE_SECRET) of its own");
  if (crossing_.empty()) crossing_ = concat(where_, ": ", what);
  return what;
}

// It is told why, or what may be told.
void TcpListener::turn_away(Guest& guest, const std::string& why, const std::string& told) {
  guest.connection->send({.kind = Frame::refusal, .body = told.empty() ? why : told});
  guest.connection->pump();
  log_stranger(concat(guest.connection->peer(), " was turned away: ", why));
  guest.connection.reset();
}

void TcpListener::log_stranger(const std::string& who) {
  turned_away_ = who;
  if (++strangers_ <= most_logged) log_warning(where_, ": ", who);
}

}  // namespace peal::comm
