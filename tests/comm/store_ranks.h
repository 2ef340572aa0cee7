// SPDX-License-Identifier: Apache-2.0
// Ranks with a store each, for tests: threads or processes, over files or TCP.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/comm/store/file_store.h>
#include <peal/comm/store/rendezvous.h>
#include <peal/comm/store/tcp_store.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

namespace peal::testing {

using comm::FileStore;
using comm::Patience;
using comm::Rendezvous;
using comm::StoreRendezvous;
using comm::TcpStore;
using std::chrono::milliseconds;

// f on a thread for each rank; what each threw.
inline std::vector<std::string> on_ranks(int world, const std::function<void(int rank)>& f) {
  std::vector<std::string> errors(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back(
        [&, rank] { errors[static_cast<std::size_t>(rank)] = error_of([&] { f(rank); }); });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// A store of a rank, and the ranks' rendezvous over it.
template <class Kind>
class Over : public Rendezvous {
 public:
  template <class... Options>
  Over(int rank, int world, Options&&... options)
      : store(std::forward<Options>(options)...), ranks_(store, rank, world) {}
  int rank() const override { return ranks_.rank(); }
  int world() const override { return ranks_.world(); }
  std::vector<std::string> exchange(const std::string& mine) override {
    return ranks_.exchange(mine);
  }
  void check() override { ranks_.check(); }
  Kind store;

 private:
  StoreRendezvous ranks_;
};

// A rank over TCP.
class Tcp : public Over<TcpStore> {
 public:
  Tcp(const std::string& host, int port, int rank, int world, Patience patience = {},
      std::string run = {}, std::string secret = {})
      : Over(rank, world, host, port, rank, world, std::move(patience), std::move(run),
             std::move(secret)) {}
  int port() const { return store.port(); }
};

class Files : public Over<FileStore> {
 public:
  Files(const std::filesystem::path& folder, int rank, int world, Patience patience = {})
      : Over(rank, world, folder, rank, world, std::move(patience)) {}
};

using Maker = std::function<std::unique_ptr<Rendezvous>(int rank, int world)>;

inline Maker files_in(const std::filesystem::path& folder,
                      milliseconds deadline = milliseconds(60'000)) {
  return [=](int rank, int world) {
    return std::make_unique<Files>(folder, rank, world, Patience{.deadline = deadline});
  };
}

// Rank 0 chooses the port; the others are made once it has.
class OverTcp {
 public:
  explicit OverTcp(milliseconds deadline = milliseconds(60'000)) : deadline_(deadline) {}
  std::unique_ptr<Tcp> make(int rank, int world, std::string run = "run 1",
                            std::string secret = {}) {
    auto store =
        std::make_unique<Tcp>("localhost", rank == 0 ? 0 : port(), rank, world,
                              Patience{.deadline = deadline_}, std::move(run), std::move(secret));
    if (rank == 0) chosen_.set_value(store->port());
    return store;
  }
  int port() { return port_.get(); }
  Maker maker() {
    return [this](int rank, int world) { return make(rank, world); };
  }

 private:
  milliseconds deadline_;
  std::promise<int> chosen_;
  std::shared_future<int> port_ = chosen_.get_future().share();
};

inline std::string text_of(int rank, int number) {
  if (number % 3 == 1 && rank % 2 == 1) return "";
  std::string text = concat("rank ", rank, " number ", number, ": ");
  text += '\0';
  text.append(static_cast<std::size_t>(rank * 7 + number), 'x');
  if (number == 2) text.append(std::size_t{1} << 20, static_cast<char>('a' + rank));
  return text;
}

inline void check_exchanges(Rendezvous& store, int numbers = 8) {
  for (int number = 0; number < numbers; ++number) {
    const auto all = store.exchange(text_of(store.rank(), number));
    PEAL_CHECK(static_cast<int>(all.size()) == store.world(), "got ", all.size(), " texts");
    for (int r = 0; r < store.world(); ++r) {
      PEAL_CHECK(all[static_cast<std::size_t>(r)] == text_of(r, number), "rank ", store.rank(),
                 ": the text of rank ", r, " in exchange ", number, " is wrong");
    }
  }
}

// A process that runs f and ends with 0 if it did not throw.
inline pid_t in_process(const std::function<void()>& f) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::string error = error_of(f);
    _exit(error == "nothing" ? 0 : 1);
  }
  return child;
}

inline bool ended_well(pid_t child) {
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace peal::testing
