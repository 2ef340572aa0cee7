// SPDX-License-Identifier: Apache-2.0
// TcpServer: rank 0's part of a TcpStore. It has the values, and a thread that serves the others,
// so that they get what is there whatever rank 0 does.
//
// Until all ranks are there it listens (tcp_listener.h). A rank that closes its connection without
// a word has died, or its program has failed, and who waits for a key is told, as of two jobs that
// have met here. Thread safety: any thread.
#pragma once

#include <peal/comm/store/tcp_listener.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace peal::comm {

class TcpServer {
 public:
  // Listens at the port, or at one of its choice where that is 0. Errors as TcpListener's.
  TcpServer(const std::string& host, int port, int world, std::string run, std::string secret);
  // What was answered is still sent, if the others take it within a second.
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;
  int port() const { return listener_.port(); }

  void set(const std::string& key, const std::string& value);
  std::int64_t add(const std::string& key, std::int64_t amount);
  void remove(const std::vector<std::string>& keys);
  // The values, or nothing before all are there. Waits for a moment. Error where a rank has died
  // and one is not.
  std::optional<std::vector<std::string>> get(const std::vector<std::string>& keys);
  // Error where a rank has died.
  void check();
  // f(what has happened), once, by the server's thread, where two jobs meet here; at once where
  // they have.
  void at_crossing(std::function<void(const std::string&)> f);
  // Which of the keys are not there, who has not come, and who was turned away: for an error.
  std::string missing(const std::vector<std::string>& keys);

 private:
  using Clock = std::chrono::steady_clock;
  struct Rank {
    std::unique_ptr<Connection> connection;  // null before it comes, and when it has left
    bool came = false;
    std::vector<std::string> wanted{};  // keys that it waits for
    std::uint32_t number = 0;           // of that request
    std::chrono::milliseconds patience{};
    Clock::time_point until{};
  };
  void serve(const std::stop_token& stop);
  void let_in();
  void hear(Rank& rank, int number);
  void obey(Rank& rank, const Frame& request);
  void answer_waiting();
  void fail_all(const std::string& problem);
  void wake() const;
  std::optional<Clock::time_point> next_look() const;
  // Under the mutex:
  std::optional<std::vector<std::string>> values_of(const std::vector<std::string>& keys) const;
  std::int64_t sum(const std::string& key, std::int64_t amount);
  std::string what_is_missing(const std::vector<std::string>& keys) const;

  TcpListener listener_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::vector<Rank> ranks_;
  std::string failure_;  // of a rank, or of the server
  std::function<void(const std::string&)> at_crossing_;
  Socket bell_;          // an eventfd: what to poll for has changed
  std::jthread thread_;  // the last: it ends before the others do
};

}  // namespace peal::comm
