// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/store/store.h>
#include <peal/comm/store/tcp_server.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace peal::comm {
namespace {

constexpr std::chrono::milliseconds nap{20};

}  // namespace

TcpServer::TcpServer(const std::string& host, int port, int world, std::string run,
                     std::string secret)
    : listener_(host, port, world, std::move(run), std::move(secret)),
      ranks_(static_cast<std::size_t>(world)),
      bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PEAL_CHECK(bell_, listener_.where(), ": no eventfd: ", std::strerror(errno));
  ranks_[0].came = true;
  thread_ = std::jthread([this, tag = context().log_tag](const std::stop_token& stop) {
    context().log_tag = tag;  // who is turned away is said as this rank's word
    serve(stop);
  });
}

TcpServer::~TcpServer() {
  thread_.request_stop();
  wake();
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

void TcpServer::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(bell_.get(), &one, sizeof one);
}

std::optional<TcpServer::Clock::time_point> TcpServer::next_look() const {
  auto next = listener_.next_look();
  for (const Rank& rank : ranks_) {
    const bool waits = rank.connection && !rank.wanted.empty();
    if (waits && (!next || rank.until < *next)) next = rank.until;
  }
  return next;
}

void TcpServer::serve(const std::stop_token& stop) {
  std::vector<pollfd> polled;
  while (!stop.stop_requested()) {
    int timeout = -1;
    {
      const std::lock_guard lock(mutex_);
      let_in();
      for (std::size_t r = 1; r < ranks_.size(); ++r) hear(ranks_[r], static_cast<int>(r));
      answer_waiting();
      polled.assign(1, {bell_.get(), POLLIN, 0});
      listener_.look_at(polled);
      for (const Rank& rank : ranks_) {
        if (rank.connection) polled.push_back(rank.connection->polled());
      }
      if (const auto next = next_look()) {
        using std::chrono::milliseconds;
        const auto left = std::chrono::ceil<milliseconds>(*next - Clock::now()) + milliseconds(1);
        timeout = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 3'600'000));
      }
    }
    poll(polled.data(), polled.size(), timeout);
    std::uint64_t rings = 0;
    [[maybe_unused]] const auto heard = ::read(bell_.get(), &rings, sizeof rings);
  }
}

void TcpServer::let_in() {
  try {
    for (auto& [rank, connection] : listener_.arrivals()) {
      connection->admit(concat("rank ", rank), most_store_bytes + 4096);  // and lengths
      ranks_[rank].came = true;
      ranks_[rank].connection = std::move(connection);
    }
  } catch (const Error& error) {
    fail_all(error.what());
  }
  if (listener_.crossing().empty()) return;
  fail_all(listener_.crossing());
  if (at_crossing_) std::exchange(at_crossing_, nullptr)(listener_.crossing());
}

void TcpServer::at_crossing(std::function<void(const std::string&)> f) {
  const std::lock_guard lock(mutex_);
  at_crossing_ = std::move(f);
  wake();
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
    return fail_all(concat(listener_.where(), ": rank ", number, ": ", error.what()));
  }
  if (there || !rank.connection) return;
  rank.connection.reset();
  fail_all(concat(listener_.where(), ": rank ", number,
                  " has closed its connection: its process has ended, or failed"));
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
      listener_.leaves(static_cast<std::size_t>(&rank - ranks_.data()));
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
    rank.connection->pump();  // which may have got the next request
    wake();
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
  if (!listener_.turned_away().empty()) text += "; " + listener_.turned_away();
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

void TcpServer::check() {
  const std::lock_guard lock(mutex_);
  PEAL_CHECK(failure_.empty(), failure_);
}

std::string TcpServer::missing(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  return what_is_missing(keys);
}

}  // namespace peal::comm
