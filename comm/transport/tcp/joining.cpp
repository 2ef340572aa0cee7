// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/store/hmac.h>
#include <peal/comm/transport/tcp/addresses.h>
#include <peal/comm/transport/tcp/joining.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

namespace peal::comm {
namespace {

constexpr std::chrono::seconds one_attempt{3};
constexpr std::chrono::milliseconds between_attempts{20};
constexpr std::chrono::seconds longest_silence{10};  // of who comes
constexpr std::size_t most_guests = 1024;
constexpr int most_logged = 20;  // strangers

// Which network the process sees: containers of one machine have several.
std::string network() {
  char target[64] = {};
  const auto length = readlink("/proc/self/ns/net", target, sizeof target - 1);
  return length > 0 ? std::string(target, static_cast<std::size_t>(length)) : "unknown";
}

std::string host_name() {
  char host[256] = "unknown";
  gethostname(host, sizeof host - 1);
  return host;
}

int number_of(const std::string& text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string shown(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
  getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port,
              sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  constexpr std::string_view mapped = "::ffff:";  // of IPv4, at a socket of IPv6
  const std::string_view said = host;
  return concat(said.substr(said.starts_with(mapped) ? mapped.size() : 0), " port ",
                std::string_view(port));
}

// As the store's, but that a rank which is slow to read is not gone (TcpLine::check_answers).
void set_up(const Socket& socket) {
  keep_alive(socket);
  const int none = 0;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none);
}

bool is_for_want_of_descriptors(int code) { return code == EMFILE || code == ENFILE; }

// Reads what is there, up to so many bytes in all. False where the other one is gone.
bool hear(const Socket& socket, std::string& heard, std::size_t most) {
  char buffer[256];
  while (heard.size() < most) {
    const auto got =
        ::recv(socket.get(), buffer, std::min(sizeof buffer, most - heard.size()), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0) return false;
    heard.append(buffer, static_cast<std::size_t>(got));
  }
  return true;
}

// A connection has room for so little at its beginning.
bool say(const Socket& socket, const std::string& text) {
  return ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(text.size());
}

}  // namespace

Joining::Joining(Rendezvous& everyone, const std::vector<int>& peers, const std::string& machine,
                 const std::string& secret)
    : everyone_(everyone), rank_(everyone.rank()), world_(everyone.world()), missing_(peers) {
  std::string problem;
  std::vector<std::string> own;
  try {  // what fails here alone comes after the exchange
    if (!peers.empty()) listen();
    own = own_addresses();
  } catch (const Error& error) {
    problem = error.what();
  }
  const auto network_here = concat(machine, " ", network());
  std::vector<std::string> mine = {nonce(), host_name(), concat(port_), network_here, problem};
  mine.insert(mine.end(), own.begin(), own.end());
  constexpr std::size_t words = 5;

  std::vector<std::string> nonces;
  int rank = 0;
  for (const std::string& said : everyone.exchange(join(mine))) {
    auto theirs = parted(said);
    PEAL_CHECK(theirs.size() >= words, "[tcp] rank ", rank, " said ", theirs.size(),
               " words of itself, expected ", words, " at least");
    PEAL_CHECK(theirs[4].empty(), "[tcp] rank ", rank, " on ", theirs[1], ": ", theirs[4]);
    nonces.push_back(theirs[0]);
    hosts_.push_back(theirs[1]);
    if (std::ranges::count(peers, rank) != 0 && calls(rank)) {
      std::vector<std::string> addresses(theirs.begin() + words, theirs.end());
      Call call{.host = theirs[1], .port = number_of(theirs[2])};
      call.addresses = in_order(addresses, own);
      // Where no device was chosen.
      if (theirs[3] == network_here && std::getenv("PEAL_SOCKET_IFNAME") == nullptr) {
        call.addresses.insert(call.addresses.begin(), "127.0.0.1");
      }
      PEAL_CHECK(!call.addresses.empty(), "[tcp] rank ", rank, " on ", theirs[1],
                 " has no network device with an address");
      calls_.emplace(rank, std::move(call));
    }
    ++rank;
  }
  key_ = key_of_job(secret, nonces);
}

// Of each pair one, so that all have about as many to call.
bool Joining::calls(int peer) const { return ((rank_ + peer) % 2 != 0) == (rank_ < peer); }

// At all devices: who comes must know the key.
void Joining::listen() {
  std::string problem = "no address to listen at";
  for (const int family : {AF_INET6, AF_INET}) {
    Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int off = 0;
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (socket && family == AF_INET6) {  // it serves IPv4 as well
      setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    auto* const place = reinterpret_cast<sockaddr*>(&address);
    if (!socket || bind(socket.get(), place, size) != 0 || ::listen(socket.get(), SOMAXCONN) != 0 ||
        getsockname(socket.get(), place, &size) != 0) {
      problem = std::strerror(errno);
      continue;
    }
    port_ = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                     : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
    listener_ = std::move(socket);
    return;
  }
  fail(concat("it cannot listen: ", problem));
}

void Joining::meet(const Patience& patience) {
  const auto start = Clock::now();
  while (!missing_.empty()) {
    accept_guests();
    hear_guests();
    for (auto& [peer, call] : calls_) go_on(peer, call);
    std::erase_if(calls_, [&](const auto& call) { return joined.contains(call.first); });
    if (missing_.empty()) break;
    patience.hopeless();
    check_joined();
    everyone_.check();
    if (Clock::now() - start >= patience.deadline) refuse(patience);
    std::vector<pollfd> polled;
    if (!starved_) polled.push_back({listener_.get(), POLLIN, 0});
    for (const Guest& guest : guests_) polled.push_back({guest.socket.get(), POLLIN, 0});
    for (const auto& [peer, call] : calls_) {
      const short what = call.connected ? POLLIN : POLLOUT;
      if (call.socket) polled.push_back({call.socket.get(), what, 0});
    }
    poll(polled.data(), polled.size(), 10);
  }
  listener_ = Socket();
  guests_.clear();
}

// Nobody lets go of a connection before all are there, but who fails.
void Joining::check_joined() const {
  for (const auto& [peer, there] : joined) {
    char byte = 0;
    const auto got = ::recv(there.socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) {
      continue;
    }
    fail(concat("[tcp] rank ", rank_, ": ", there.who, " is gone (",
                got == 0 ? "it closed the connection" : std::strerror(errno),
                ") while this one waited for ", missing(), "; its own output says why"));
  }
}

std::string Joining::missing() const {
  std::string who;
  for (const int peer : missing_) {
    const auto call = calls_.find(peer);
    who += concat(who.empty() ? "" : ", ", "rank ", peer, " on ",
                  hosts_[static_cast<std::size_t>(peer)],
                  call == calls_.end() ? " to call" : concat(" (", call->second.problem, ")"));
  }
  return who;
}

void Joining::refuse(const Patience& patience) const {
  fail(concat("[tcp] rank ", rank_, " waited ",
              std::chrono::duration<double>(patience.deadline).count(), " s (PEAL_TIMEOUT) for ",
              missing(),
              "; let the nodes reach each other at any port, or name the network "
              "device that they do by (PEAL_SOCKET_IFNAME)"));
}

void Joining::fail_starved(int code) const {
  fail(concat("[tcp] rank ", rank_, " can take no more connections with ", missing_.size(),
              " to come: ", std::strerror(code), "; raise the limit of open files (ulimit -n) to ",
              world_ + 64, " at least"));
}

void Joining::accept_guests() {
  for (;;) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    Socket socket(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size,
                          SOCK_CLOEXEC | SOCK_NONBLOCK));
    starved_ = !socket && is_for_want_of_descriptors(errno);
    // Strangers among the guests may hold what ranks need.
    if (starved_ && guests_.empty()) fail_starved(errno);
    if (!socket) return;
    set_up(socket);
    if (guests_.size() >= most_guests) {  // ranks that were welcomed stay
      const auto first = std::ranges::find(guests_, -1, &Guest::rank);
      if (first != guests_.end()) guests_.erase(first);
    }
    guests_.push_back({std::move(socket), shown(address, size), {}, Clock::now()});
  }
}

void Joining::hear_guests() {
  for (Guest& guest : guests_) {
    try {
      if (!stays(guest)) guest.socket = Socket();
    } catch (const Error& error) {
      turn_away(guest.where, error.what());
      guest.socket = Socket();
    }
  }
  std::erase_if(guests_, [](const Guest& guest) { return !guest.socket; });
}

bool Joining::due(int peer) const {
  return std::ranges::count(missing_, peer) != 0 && !calls_.contains(peer);
}

// Whether more is to be heard of it; Error where it is a stranger. A caller may have given up
// before it was heard, or before it heard the welcome, and call again: it is let in where it says
// thanks. One that was welcomed may have said that, so only its own end ends it.
bool Joining::stays(Guest& guest) {
  const bool welcomed = guest.rank >= 0;
  const std::size_t most = TcpHello::size + (welcomed ? TcpHello::thanks.size() : 0);
  const bool there = hear(guest.socket, guest.heard, most);
  if (guest.heard.size() < most) {
    const bool silent = !welcomed && Clock::now() - guest.since > longest_silence;
    PEAL_CHECK(!silent && (there || welcomed || guest.heard.empty()), "it did not say who it is");
    return there;
  }
  if (welcomed) {
    PEAL_CHECK(guest.heard.ends_with(TcpHello::thanks) && due(guest.rank), "rank ", guest.rank,
               " was welcomed, and did not go on as it should");
    let_in(guest.rank, std::move(guest.socket), guest.where);
    return false;
  }
  const TcpHello hello = hello_in(guest.heard, key_);
  const int from = static_cast<int>(hello.from);
  PEAL_CHECK(due(from) && static_cast<int>(hello.to) == rank_, "rank ", hello.from, " called rank ",
             hello.to, ", which is not due to come to rank ", rank_);
  guest.rank = from;
  return say(guest.socket, welcome_to(hello, key_));
}

void Joining::turn_away(const std::string& where, const std::string& why) {
  if (++strangers_ > most_logged) return;
  log_warning("[tcp] rank ", rank_, " at port ", port_, ": ", where, " was turned away: ", why);
}

void Joining::let_in(int peer, Socket socket, const std::string& where) {
  std::erase(missing_, peer);
  joined.emplace(peer, Joined{std::move(socket),
                              concat("rank ", peer, " (", hosts_[static_cast<std::size_t>(peer)],
                                     ", ", where, ")")});
}

// Its next address is tried after a while.
void Joining::drop(Call& call, const std::string& problem) {
  call.problem = concat(call.addresses[call.at], " port ", call.port, ": ", problem);
  call.socket = Socket();
  call.connected = false;
  call.at = (call.at + 1) % call.addresses.size();
  call.since = Clock::now() + between_attempts;
}

void Joining::begin(int peer, Call& call) {
  std::string problem;
  const Addresses addresses(call.addresses[call.at], call.port, false, problem);
  const addrinfo* const to = addresses.first();
  if (to == nullptr) return drop(call, problem);
  Socket socket(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket && is_for_want_of_descriptors(errno) && guests_.empty()) fail_starved(errno);
  if (!socket) return drop(call, std::strerror(errno));
  set_up(socket);
  const bool at_once = connect(socket.get(), to->ai_addr, to->ai_addrlen) == 0;
  if (!at_once && errno != EINPROGRESS) return drop(call, std::strerror(errno));
  call.socket = std::move(socket);
  call.since = Clock::now();
  call.heard.clear();
  call.hello = {.from = static_cast<std::uint32_t>(rank_),
                .to = static_cast<std::uint32_t>(peer),
                .world = static_cast<std::uint32_t>(world_),
                .nonce = nonce()};
}

void Joining::go_on(int peer, Call& call) {
  if (!call.socket) {
    if (Clock::now() < call.since) return;
    begin(peer, call);
    if (!call.socket) return;
  }
  if (!call.connected) {
    pollfd polled{call.socket.get(), POLLOUT, 0};
    if (poll(&polled, 1, 0) <= 0) {
      if (Clock::now() - call.since > one_attempt) drop(call, "no answer");
      return;
    }
    int code = 0;
    socklen_t size = sizeof code;
    getsockopt(call.socket.get(), SOL_SOCKET, SO_ERROR, &code, &size);
    if (code != 0) return drop(call, std::strerror(code));
    if (!say(call.socket, encode(call.hello, key_))) return drop(call, "it takes nothing");
    call.connected = true;
    call.since = Clock::now();
  }
  const bool there = hear(call.socket, call.heard, TcpHello::welcome_size);
  if (call.heard.size() == TcpHello::welcome_size) {
    if (!equal_proofs(call.heard, welcome_to(call.hello, key_))) {
      return drop(call, "who listens there is not of this job");
    }
    if (!say(call.socket, std::string(TcpHello::thanks))) return drop(call, "it takes nothing");
    return let_in(peer, std::move(call.socket),
                  concat(call.addresses[call.at], " port ", call.port));
  }
  if (!there) return drop(call, "it closed the connection: it is another's, or not of this job");
  if (Clock::now() - call.since > longest_silence) drop(call, "no word");
}

}  // namespace peal::comm
