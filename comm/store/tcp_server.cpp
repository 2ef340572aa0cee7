// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/store/store.h>
#include <peal/comm/store/tcp_server.h>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace peal::comm {
namespace {

constexpr std::size_t most_guests = 4096;           // who have not said who they are,
constexpr std::size_t most_of_guest = 256;          // in at most so many bytes
constexpr int most_logged = 20;                     // strangers
constexpr std::chrono::seconds longest_silence{2};  // of a guest, where descriptors run out
constexpr std::chrono::milliseconds nap{20};

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

}  // namespace

TcpServer::TcpServer(const std::string& host, int port, int world, std::string run)
    : run_(std::move(run)), ranks_(static_cast<std::size_t>(world)) {
  where_ = concat("[store] rank 0 of ", world, " at ", host, " port ", port);
  ranks_[0].came = true;
  listen(host, port);
  where_ = concat("[store] rank 0 of ", world, " at ", host, " port ", port_);
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

TcpServer::~TcpServer() {
  thread_.request_stop();
  thread_.join();
  for (std::size_t r = 1; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    if (!rank.connection || (rank.wanted.empty() && failure_.empty())) continue;
    Frame last{.kind = Frame::failure, .number = rank.number, .body = failure_};
    if (failure_.empty()) {
      last.body =
          concat("[store] rank ", r, " of ", ranks_.size(),
                 ": rank 0 has closed its connection: its store is gone; this one waited for ",
                 what_is_missing(rank.wanted));
    }
    rank.connection->send(last);
  }
  const auto end = Clock::now() + std::chrono::seconds(1);
  const auto unsent = [](const Rank& rank) {
    return rank.connection && rank.connection->pump() && rank.connection->sends();
  };
  while (Clock::now() < end && std::ranges::any_of(ranks_, unsent))
    std::this_thread::sleep_for(nap);
}

void TcpServer::listen(const std::string& host, int port) {
  const bool loopback = host == "localhost" || host == "127.0.0.1" || host == "::1";
  // A host's own name may stand for an address that the others do not reach: every device, then.
  std::string problem = "no address to listen at";
  const Addresses addresses(loopback ? host : "", port, true, problem);
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
  PEAL_CHECK(listener_, where_, " cannot listen: ", problem,
             "; choose a free port, or end the job that has it");
  port_ = port_of(listener_.get());
}

void TcpServer::serve(const std::stop_token& stop) {
  std::vector<pollfd> polled;
  while (!stop.stop_requested()) {
    {
      const std::lock_guard lock(mutex_);
      if (listener_) accept_guests();
      hear_guests();
      for (std::size_t r = 1; r < ranks_.size(); ++r) hear(ranks_[r], static_cast<int>(r));
      answer_waiting();
      if (listener_ && all_came()) {
        listener_ = Socket();
        guests_.clear();
      }
      polled.clear();
      const auto look_at = [&](const Connection& connection) {
        const int both = POLLIN | (connection.sends() ? POLLOUT : 0);
        polled.push_back({connection.descriptor(), static_cast<short>(both), 0});
      };
      if (listener_ && !starved_) polled.push_back({listener_.get(), POLLIN, 0});
      for (const auto& guest : guests_) look_at(*guest.connection);
      for (const Rank& rank : ranks_) {
        if (rank.connection) look_at(*rank.connection);
      }
    }
    poll(polled.data(), polled.size(), static_cast<int>(nap.count()));
  }
}

void TcpServer::accept_guests() {
  starved_ = false;
  for (;;) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    Socket socket(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size,
                          SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
      const std::string problem = reason();
      // Strangers may hold what ranks need.
      starved_ = true;
      const auto now = Clock::now();
      std::erase_if(guests_,
                    [&](const Guest& guest) { return now - guest.since > longest_silence; });
      if (!guests_.empty()) return;
      const auto here = std::ranges::count_if(ranks_, [](const Rank& rank) { return rank.came; });
      listener_ = Socket();
      return fail_all(concat(where_, " can take no more connections with ", here, " of ",
                             ranks_.size(), " ranks there: ", problem,
                             "; raise the limit of open files (ulimit -n) to ", ranks_.size() + 64,
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

void TcpServer::turn_away(const std::string& whom) {
  turned_away_ = whom;
  if (++strangers_ <= most_logged) log_warning(where_, ": ", whom);
}

void TcpServer::hear_guests() {
  for (auto& [guest, since] : guests_) {
    const bool there = guest->pump();
    try {
      if (const auto said = guest->take()) {
        admit(guest, *said);
      } else if (!there) {
        guest.reset();
      }
    } catch (const Error& error) {  // a stranger
      turn_away(error.what());
      guest.reset();
    }
  }
  std::erase_if(guests_, [](const Guest& guest) { return !guest.connection; });
}

// A guest who said who it is: a rank, or turned away. It is not told what it should have said.
bool TcpServer::admit(std::unique_ptr<Connection>& guest, const Frame& said) {
  std::string objection, told;
  if (said.kind != Frame::hello) {
    objection = "it did not say who it is";
  } else if (said.body != run_) {
    objection = concat("it is of the run '", said.body, "', this is '", run_, "'");
    told = concat("it is of the run '", said.body, "', which this is not");
  } else if (said.world != ranks_.size() || said.rank == 0 || said.rank >= said.world) {
    objection = concat("it is rank ", said.rank, " of ", said.world, ", here is a world of ",
                       ranks_.size());
  } else if (ranks_[said.rank].came) {
    const auto& other = ranks_[said.rank].connection;
    objection = concat("rank ", said.rank, " is here already",
                       other ? concat(", as ", other->peer()) : std::string(" and has left"));
  }
  const bool welcome = objection.empty();
  guest->send(
      {.kind = welcome ? Frame::welcome : Frame::refusal, .body = told.empty() ? objection : told});
  guest->pump();
  if (!welcome) {
    turn_away(concat(guest->peer(), " was turned away: ", objection));
    guest.reset();
    return false;
  }
  guest->admit(concat("rank ", said.rank), most_store_bytes + 4096);  // and lengths
  ranks_[said.rank].came = true;
  ranks_[said.rank].connection = std::move(guest);
  return true;
}

void TcpServer::hear(Rank& rank, int number) {
  if (!rank.connection) return;
  const bool there = rank.connection->pump();
  try {
    while (rank.connection) {
      const auto request = rank.connection->take();
      if (!request) break;
      obey(rank, *request);
    }
  } catch (const Error& error) {  // it speaks as no rank does
    rank.connection.reset();
    return fail_all(concat(where_, ": rank ", number, ": ", error.what()));
  }
  if (there || !rank.connection) return;
  rank.connection.reset();
  fail_all(concat(where_, ": rank ", number, " has closed its connection: its process has ended"));
}

void TcpServer::obey(Rank& rank, const Frame& request) {
  Frame answer{.kind = Frame::answer, .number = request.number};
  auto words = parted(request.body);
  const auto need = [&](std::size_t least) {
    PEAL_CHECK(words.size() >= least, "[store] a request of ", words.size(), " words");
  };
  switch (request.kind) {
    case Frame::bye:
      rank.connection.reset();
      return;
    case Frame::set:
      need(2);
      values_[words[0]] = std::move(words[1]);
      changed_.notify_all();
      break;
    case Frame::add:
      need(2);
      try {
        answer.body = concat(sum(words[0], number_in("amount", words[1])));
      } catch (const Error& error) {
        answer = {.kind = Frame::failure, .number = request.number, .body = error.what()};
      }
      changed_.notify_all();
      break;
    case Frame::remove:
      for (const std::string& key : words) values_.erase(key);
      break;
    case Frame::get:
      need(1);
      rank.patience = std::chrono::milliseconds(number_in("patience", words[0]));
      rank.until = Clock::now() + rank.patience;
      words.erase(words.begin());
      rank.wanted = std::move(words);
      rank.number = request.number;
      return;
    default:
      fail("[store] no request");
  }
  rank.connection->send(answer);
  rank.connection->pump();
}

// Those whose keys are there now, or will not be.
void TcpServer::answer_waiting() {
  for (std::size_t r = 1; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    if (!rank.connection || rank.wanted.empty()) continue;
    Frame answer{.kind = Frame::answer, .number = rank.number};
    if (const auto values = values_of(rank.wanted)) {
      answer.body = join(*values);
    } else if (!failure_.empty()) {
      answer.kind = Frame::failure;
      answer.body = failure_;
    } else if (Clock::now() > rank.until) {
      answer.kind = Frame::failure;
      answer.body = concat("[store] rank ", r, " of ", ranks_.size(), " waited ",
                           std::chrono::duration<double>(rank.patience).count(),
                           " s (PEAL_TIMEOUT) for ", what_is_missing(rank.wanted));
    } else {
      continue;
    }
    rank.wanted.clear();
    rank.connection->send(answer);
    rank.connection->pump();
  }
}

void TcpServer::fail_all(const std::string& problem) {
  if (failure_.empty()) failure_ = problem;
  changed_.notify_all();
}

std::optional<std::vector<std::string>> TcpServer::values_of(
    const std::vector<std::string>& keys) const {
  std::vector<std::string> values;
  for (const std::string& key : keys) {
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    values.push_back(found->second);
  }
  return values;
}

std::int64_t TcpServer::sum(const std::string& key, std::int64_t amount) {
  const auto found = values_.find(key);
  const std::int64_t sum = (found == values_.end() ? 0 : number_in(key, found->second)) + amount;
  values_[key] = concat(sum);
  return sum;
}

bool TcpServer::all_came() const {
  return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.came; });
}

std::string TcpServer::what_is_missing(const std::vector<std::string>& keys) const {
  std::vector<std::string> absent;
  for (const std::string& key : keys) {
    if (!values_.contains(key)) absent.push_back(key);
  }
  std::string text = named(absent), not_there;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    if (!ranks_[r].came) not_there += concat(not_there.empty() ? "; rank " : ", ", r);
  }
  if (!not_there.empty()) text += not_there + " did not connect";
  if (!turned_away_.empty()) text += "; " + turned_away_;
  return text;
}

void TcpServer::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  values_[key] = value;
  answer_waiting();
}

std::int64_t TcpServer::add(const std::string& key, std::int64_t amount) {
  const std::lock_guard lock(mutex_);
  const std::int64_t result = sum(key, amount);
  answer_waiting();
  return result;
}

void TcpServer::remove(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  for (const std::string& key : keys) values_.erase(key);
}

std::optional<std::vector<std::string>> TcpServer::get(const std::vector<std::string>& keys) {
  std::unique_lock lock(mutex_);
  auto values = values_of(keys);
  if (!values && failure_.empty()) {
    changed_.wait_for(lock, nap);
    values = values_of(keys);
  }
  PEAL_CHECK(values || failure_.empty(), failure_);
  return values;
}

std::string TcpServer::missing(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  return what_is_missing(keys);
}

}  // namespace peal::comm
