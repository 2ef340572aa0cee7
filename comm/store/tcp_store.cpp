// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/store/hmac.h>
#include <peal/comm/store/tcp_store.h>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace peal::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t longest_run = 256;
constexpr std::chrono::seconds one_attempt{5};
constexpr std::chrono::seconds silence{5};  // of one who waits, before it says for what
constexpr std::chrono::seconds grace{2};    // for rank 0 to say what was missing
// Rank 0 answers by a thread of its own. Who does not, so long or so often, is another program.
constexpr std::chrono::seconds most_silence{15};
constexpr int most_silent_ends = 75;

// TCP may connect a socket that asks for a port in vain with itself.
bool is_its_own_peer(int descriptor) {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  return getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
         own_size == peer_size && std::memcmp(&own, &peer, own_size) == 0;
}

}  // namespace

// Throws where the others have had their time, or one has failed.
class TcpStore::Deadline {
 public:
  explicit Deadline(const TcpStore& store, std::chrono::milliseconds more = {})
      : store_(store), more_(more) {}
  template <class Missing>
  void check(const Missing& missing) const {
    store_.patience_.hopeless();
    if (Clock::now() - start_ < store_.patience_.deadline + more_) return;
    fail(concat(store_.who(), " waited ",
                std::chrono::duration<double>(store_.patience_.deadline).count(),
                " s (PEAL_TIMEOUT) for ", missing()));
  }

 private:
  const TcpStore& store_;
  std::chrono::milliseconds more_;
  Clock::time_point start_ = Clock::now();
};

TcpStore::TcpStore(std::string host, int port, int rank, int world, Patience patience,
                   std::string run, std::string secret)
    : host_(std::move(host)),
      run_(std::move(run)),
      secret_(std::move(secret)),
      port_(port),
      rank_(rank),
      world_(world),
      patience_(std::move(patience)) {
  PEAL_CHECK(rank >= 0 && rank < world, "[store] rank ", rank, " of a world of ", world);
  PEAL_CHECK(port >= (rank == 0 ? 0 : 1) && port <= 65535, "[store] the port ", port,
             ": expected 1 to 65535");
  PEAL_CHECK(run_.size() <= longest_run, "[store] a run of ", run_.size(),
             " bytes; expected at most ", longest_run);
  if (rank_ != 0) return;
  try {
    server_ = std::make_unique<TcpServer>(host_, port_, world_, run_, secret_);
  } catch (const PortTaken&) {
    tell_who_has_the_port();
    throw;
  }
  port_ = server_->port();
}

// Where that is another job like this one, it may have taken ranks of this one for its own.
void TcpStore::tell_who_has_the_port() const {
  if (!run_.empty() || !secret_.empty() || world_ == 1) return;
  try {
    const Deadline deadline(*this);
    std::string problem;
    const auto connection = try_to_connect(deadline, problem);
    if (!connection) return;
    connection->send(frame_of(Hello{0, static_cast<std::uint32_t>(world_)}));
    const auto end = Clock::now() + grace;
    while (connection->pump() && !connection->take() && Clock::now() < end) wait_for(*connection);
  } catch (const Error&) {  // it is no store
  }
}

void TcpStore::at_crossing(std::function<void(const std::string&)> f) {
  if (server_) server_->at_crossing(std::move(f));
}

// A child has neither the server's thread nor a word in its parent's connection.
TcpStore::~TcpStore() {
  if (mark_.inherited()) {
    static_cast<void>(server_.release());
    return;
  }
  if (!root_ || std::uncaught_exceptions() > unwinding_) return;
  root_->send({.kind = Frame::bye});
  root_->pump();
}

std::string TcpStore::who() const {
  return concat("[store] rank ", rank_, " of ", world_, " at ", host_, " port ", port_);
}

std::unique_ptr<Connection> TcpStore::try_to_connect(const Deadline& deadline,
                                                     std::string& problem) const {
  const Addresses addresses(host_, port_, false, problem);
  for (const addrinfo* a = addresses.first(); a != nullptr; a = a->ai_next) {
    Socket socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) {
      problem = std::strerror(errno);
      continue;
    }
    keep_alive(socket);
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
  const auto start = Clock::now();
  bool told = false;
  for (int silent_ends = 0;;) {
    if (auto connection = try_to_connect(deadline, problem)) {
      if (introduce(*connection, deadline)) {
        root_ = std::move(connection);
        return;
      }
      problem = "it closed the connection without a word";
      PEAL_CHECK(++silent_ends < most_silent_ends, who(), ": who listens there has closed ",
                 silent_ends,
                 " connections without a word, and is not rank 0: another program has "
                 "the port; choose a free one (MASTER_PORT)");
    }
    deadline.check([&] { return concat("rank 0 (", problem, ")"); });
    if (!told && Clock::now() - start > silence) {
      log_warning(who(), " waits for rank 0, and so far in vain: ", problem);
      told = true;
    }
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, std::chrono::milliseconds(200));
  }
}

// True once rank 0 has let this one in; false where it has closed without a word.
bool TcpStore::introduce(Connection& connection, const Deadline& deadline) const {
  const Hello hello{static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(world_), run_,
                    secret_.empty() ? "" : nonce()};
  std::string drawn;  // by rank 0
  const auto start = Clock::now();
  connection.send(frame_of(hello));
  for (bool there = true; there;) {
    there = connection.pump();
    while (const auto said = connection.take()) {
      if (said->kind == Frame::challenge && !secret_.empty() && drawn.empty()) {
        drawn = said->body;
        connection.send({.kind = Frame::proof, .body = proof_of_rank(secret_, hello, drawn)});
        connection.pump();
        continue;
      }
      PEAL_CHECK(said->kind == Frame::welcome, who(), " was turned away: ", said->body,
                 "; start all ranks with one world, address, run and secret, each once");
      PEAL_CHECK(
          secret_.empty() ||
              (!drawn.empty() && equal_proofs(said->body, proof_of_root(secret_, hello, drawn))),
          who(),
          ": who listens there does not know the secret (PEAL_STORE_SECRET), and is "
          "not rank 0; give the job another port");
      return true;
    }
    deadline.check([] { return "rank 0 to answer"; });
    PEAL_CHECK(Clock::now() - start < most_silence, who(),
               ": who listens there has said nothing "
               "for ",
               most_silence.count(),
               " s, and is not rank 0: another program has the "
               "port; choose a free one (MASTER_PORT)");
    if (there) wait_for(connection);
  }
  return false;
}

std::string TcpStore::ask(Frame::Kind kind, const std::vector<std::string>& words) {
  PEAL_CHECK(!failed_, who(), ": an earlier call has failed");
  failed_ = true;  // until it has not
  if (!root_) connect();
  root_->send({.kind = kind, .number = ++number_, .body = join(words)});
  const Deadline deadline(*this, grace);
  for (;;) {
    const bool open = root_->pump();
    if (auto said = root_->take()) {
      if (said->kind == Frame::failure) fail(said->body);
      PEAL_CHECK(said->kind == Frame::answer && said->number == number_, who(),
                 ": rank 0 answered request ", said->number, ", expected ", number_);
      failed_ = false;
      return std::move(said->body);
    }
    check_open(open);
    deadline.check([] { return "rank 0's answer"; });
    wait_for(*root_);
  }
}

void TcpStore::check_open(bool open) const {
  PEAL_CHECK(open, who(), ": rank 0 has closed its connection: its process or its store is gone");
}

// What rank 0 says unasked is why its store ends.
void TcpStore::check() {
  refuse_inherited();
  if (server_) return server_->check();
  if (!root_ || failed_) return;
  const bool open = root_->pump();
  const auto said = root_->take();
  failed_ = said || !open;
  if (said) fail(said->body);
  check_open(open);
}

void TcpStore::check_size(const std::string& key, const std::string& value) const {
  PEAL_CHECK(!key.empty() && key.size() + value.size() <= most_store_bytes, who(), ": a text of ",
             value.size(), " bytes for the key '", key.substr(0, 40), "'; expected at most ",
             most_store_bytes, " with the key, and that not empty");
}

void TcpStore::refuse_inherited() const {
  PEAL_CHECK(!mark_.inherited(), who(),
             ": a child by fork has no store, for its connection is its parent's; call it in the "
             "parent, or start the child as a program of its own");
}

void TcpStore::set(const std::string& key, const std::string& value) {
  refuse_inherited();
  check_size(key, value);
  if (server_) {
    server_->set(key, value);
  } else {
    ask(Frame::set, {key, value});
  }
}

std::vector<std::string> TcpStore::multi_get(const std::vector<std::string>& keys) {
  refuse_inherited();
  if (keys.empty()) return {};
  if (!server_) {
    std::vector<std::string> words = {concat(patience_.deadline.count())};
    words.insert(words.end(), keys.begin(), keys.end());
    auto values = parted(ask(Frame::get, words));
    PEAL_CHECK(values.size() == keys.size(), who(), ": rank 0 sent ", values.size(),
               " values, expected ", keys.size());
    return values;
  }
  const Deadline deadline(*this);
  for (;;) {
    if (auto values = server_->get(keys)) return std::move(*values);
    deadline.check([&] { return server_->missing(keys); });
  }
}

std::int64_t TcpStore::add(const std::string& key, std::int64_t amount) {
  refuse_inherited();
  check_size(key, "");
  return server_ ? server_->add(key, amount)
                 : number_in(key, ask(Frame::add, {key, concat(amount)}));
}

void TcpStore::remove(const std::vector<std::string>& keys) {
  refuse_inherited();
  if (server_) {
    server_->remove(keys);
  } else {
    ask(Frame::remove, keys);
  }
}

}  // namespace peal::comm
