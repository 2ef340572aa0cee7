// SPDX-License-Identifier: Apache-2.0
// FarBoard: the board (board.h) of ranks that share no memory: those of other nodes, and of a node
// without room in /dev/shm. What there lies in memory goes as messages here, over a transport of
// the control plane's own (MPI: a duplicated communicator): from a rank that waits for long what it
// waits for and its last calls, from one that works for long now and then that it does
// (heartbeat.h), and from one that fails why. A word is true whenever it is heard,
// for the numbers of calls never come again; that a rank works, for a while. Nothing is sent while
// calls end in time, but looked
// for: a rank for which the others wait, call after call, waits for nobody, and their words would
// pile up there. Ranks that are gone are passed over: who waits for them hears of it elsewhere.
//
// Thread safety: tells and hear() from any thread that may use the transport; the rest from any.
#pragma once

#include <peal/comm/control/board.h>
#include <peal/comm/transport/transport.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace peal::comm {

class FarBoard {
 public:
  static constexpr std::uint64_t group = 0x6c6f72746e6f63;  // the transport's
  static constexpr std::size_t calls_told = 48;

  // `transport`: of all ranks of the world, for this alone.
  explicit FarBoard(std::unique_ptr<Transport> transport);
  ~FarBoard();
  FarBoard(const FarBoard&) = delete;
  FarBoard& operator=(const FarBoard&) = delete;

  // This rank's row and the last of its calls, to these ranks; once for each call, and to each only
  // once all has gone that it was sent before.
  void tell(const std::vector<int>& ranks, const Row& row, const FlightRecorder& flight);
  // That this rank works, and on what, and will say so again in so much time. From a thread that
  // stands beside the program's.
  void tell_work(const std::vector<int>& ranks, const std::string& work,
                 std::chrono::milliseconds apart);
  // Why this rank has failed. Once.
  void tell_failure(const std::vector<int>& ranks, const std::string& why);
  // Takes in what these ranks have told; the message of one that has failed.
  std::optional<std::string> hear(const std::vector<int>& ranks);
  // After a failure: the destructor waits for nobody.
  void abandon();
  // A thread beside the program's may tell and hear.
  bool travels_beside() const { return transport_->travels_beside(true); }

  // What a rank told last. Nothing: not heard of.
  std::optional<Row> row(int rank) const;
  // Where that is that it works.
  struct Work {
    std::string name;
    std::chrono::steady_clock::time_point heard;
    std::chrono::milliseconds apart;
    // It has said so again lately. Who waits hears now and then alone, however often it is said.
    bool goes_on() const {
      constexpr std::chrono::milliseconds least{150};
      return std::chrono::steady_clock::now() - heard < std::max(3 * apart, least);
    }
  };
  std::optional<Work> work(int rank) const;
  bool anyone_works() const;
  std::optional<Finished> finished(int rank, std::uint64_t group, std::uint64_t sequence) const;
  // All that it said it has finished of that group, by number, in that order.
  std::vector<std::pair<std::uint64_t, Finished>> finished(int rank, std::uint64_t group) const;
  std::vector<FlightRow> calls(int rank) const;

 private:
  struct Word;
  struct Sent {
    int to;
    Ticket ticket;
    std::shared_ptr<Word> word;  // one for all whom it goes to
  };
  struct Heard {
    std::optional<Row> row{};
    std::optional<Work> work{};
    std::vector<FlightRow> calls{};
  };
  struct Inbox {
    std::optional<Ticket> ticket{};
    std::unique_ptr<Word> word{};
    bool over = false;  // nothing comes from there any more
  };
  bool may_send() const;
  void send(const std::vector<int>& ranks, const std::shared_ptr<Word>& word);
  void give_up(Sent& sent);
  void drop_sent();
  std::vector<int> without_full(const std::vector<int>& ranks) const;
  void take(int rank, Word& word, std::optional<std::string>& failure);

  mutable std::mutex moving_;  // of the transport, and what follows
  std::unique_ptr<Transport> transport_;
  std::deque<Sent> sent_;
  std::map<int, Inbox> inboxes_;
  std::map<int, Row> told_;  // to whom
  bool told_failure_ = false;
  mutable std::mutex mutex_;  // of what follows
  std::map<int, Heard> heard_;
};

}  // namespace peal::comm
