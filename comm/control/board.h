// SPDX-License-Identifier: Apache-2.0
// Board: the ranks' status table in shared memory, of one node and group, a slot a rank. All see it
// (a shared-memory segment between processes, ordinary memory between threads); it consists of
// atomics only, so a rank that dies at any moment leaves it readable. Thread safety: any thread may
// read any slot, poison the board, and begin and end work; the rest of a slot is its rank's alone,
// publish() from any of its threads, finished() from one at a time.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/autograd/core/told_warnings.h>
#include <peal/comm/control/flight_recorder.h>
#include <peal/comm/memory/shared_segment.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace peal::comm {

// What a rank says it is doing: the operation that has been pending for long.
struct Row {
  std::uint64_t group = 0;  // which group's operation; sequences of different groups don't compare
  std::uint64_t sequence = 0;
  std::uint64_t signature =
      0;                     // of (collective, dtype, op, root, counts); equal on ranks that agree
  char text[104] = {};       // the operation in words
  char waits_for[128] = {};  // the messages that it still needs, in words
  // The only thread of the process that has used groups waits for it, for as long as it takes.
  std::uint64_t alone = 0;

  bool operator==(const Row&) const = default;
};

// What a rank says that it works on; empty: it does not say.
struct WorkName {
  char text[64] = {};
};

class Board {
 public:
  // In ordinary memory: for threads, and for a world of one.
  static std::shared_ptr<Board> in_memory(int world);
  // For the ranks of `node`, which all call this, collective: they are `here` of the world, and
  // have flight recorders; by default all. NoSharedMemory as SharedSegment's.
  static std::shared_ptr<Board> shared(Rendezvous& node, int world,
                                       const std::vector<int>& here = {});
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int world() const { return world_; }
  void publish(int rank, const Row& row);
  std::optional<Row> read(int rank) const;  // nothing before the first publish

  // The last operations that a rank finished, by group and sequence.
  static constexpr std::uint64_t remembered = 64;
  void finished(int rank, std::uint64_t group, std::uint64_t sequence, const Finished& what);
  // Nothing where the rank has not finished it, or long ago.
  std::optional<Finished> finished(int rank, std::uint64_t group, std::uint64_t sequence) const;
  // Whether the rank has a recorder on this board: those of a node's board are its own ranks'.
  bool has_flight(int rank) const { return recorder_of_[at(rank)] >= 0; }
  // What a rank has begun last, and how far that came. finished()'s thread writes. Error: the rank
  // has none here.
  FlightRecorder& flight(int rank) { return flights()[recorder(rank)]; }
  const FlightRecorder& flight(int rank) const { return flights()[recorder(rank)]; }
  // Of all who are to write the records of the node's ranks down, one at a time, until one has: the
  // rank takes that from nobody, or from a writer that does not come to its end.
  bool take_flight(int rank, int from = nobody) {
    std::int32_t before = from + 1;
    return header_->flight_writer.compare_exchange_strong(before, rank + 1);
  }
  int flight_writer() const { return header_->flight_writer - 1; }
  void end_flight(int rank, bool written) {
    std::int32_t own = rank + 1;
    if (written) header_->flight_writer = Header::no_more;
    if (!written) header_->flight_writer.compare_exchange_strong(own, 0);
  }
  bool flight_written() const { return header_->flight_writer == Header::no_more; }
  // Of those who could not, the first.
  bool take_flight_word() { return header_->flight_word_taken.exchange(1) == 0; }
  // Of two ranks that call it, the later sees all that the earlier wrote before.
  void meet_passing() { header_->passed.fetch_add(1); }

  // The first to poison wins; its message is what everyone will read. One that dies while it does
  // has poisoned nothing, and keeps nobody else from it.
  void poison(const std::string& message, int rank = nobody);
  std::optional<std::string> poisoned() const;
  static constexpr int nobody = -1;
  int poisoner() const;  // the rank whose message it is; nobody: none, or it did not say
  // Of all who are to tell people the message, the first; and whether there was one.
  bool take_word() { return header_->word_taken.exchange(1) == 0; }
  // Of the ranks' warnings; processes alone need it, for threads have the log's own.
  ToldWarnings* told_warnings() { return segment_ ? &header_->warnings : nullptr; }
  // Once in so much time, over all ranks.
  bool take_stall_word(std::chrono::milliseconds apart);
  bool word_taken() const { return header_->word_taken.load() != 0; }
  bool is_poisoned() const { return header_->winner.load(std::memory_order_acquire) != 0; }

  // A rank says that it works, and on what, and when it is done: as often as it began. The name is
  // then what it was before, which the beginning gives.
  WorkName begin_work(int rank, std::string_view what = {});
  void end_work(int rank, const WorkName& before = {});
  bool works(int rank) const { return slot(rank).works.load() > 0; }
  std::string work(int rank) const;

  // A rank has told what there is to tell of a failure, and is about to end.
  void leave(int rank) { slot(rank).left = 1; }
  bool has_left(int rank) const { return slot(rank).left != 0; }

 private:
  // A value, by one writer at a time, for any readers.
  template <class T>
  struct Published {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);
    static constexpr int count = sizeof(T) / 8;
    std::atomic<std::uint64_t> stamp;  // odd while being written; 0: never
    std::atomic<std::uint64_t> word[count];
    void write(const T& value);
    // Nothing: never written, or its writer died in the middle.
    std::optional<T> read() const;
  };
  struct alignas(64) Words {
    Published<Row> row;
    Published<WorkName> work;
    struct Place {
      std::atomic<std::uint64_t> key;  // of (group, sequence); 0: none
      std::atomic<std::uint64_t> signature, call[2];
    } finished[remembered];
    std::atomic<std::int32_t> works;
    std::atomic<std::uint32_t> left;
  };
  // Who poisons takes a place, writes there, and then says that it has: the first to say so wins.
  struct alignas(64) Header {
    static constexpr int places = 16, message_bytes = 2048;
    std::atomic<std::uint32_t> taken;   // places
    std::atomic<std::uint32_t> winner;  // its place and 1; 0: all is well
    std::atomic<char> message[places][message_bytes];
    std::atomic<std::int32_t> rank[places];  // and 1; 0: nobody
    std::atomic<std::uint32_t> word_taken, flight_word_taken;
    static constexpr std::int32_t no_more = std::numeric_limits<std::int32_t>::max();
    std::atomic<std::int32_t> flight_writer;  // and 1; 0: nobody; no_more: one has written
    std::atomic<std::uint32_t> passed;
    std::atomic<std::int64_t> stall_word;  // when it was last taken; 0: never
    ToldWarnings warnings;
  };
  Board(void* memory, std::vector<int> recorder_of, std::shared_ptr<SharedSegment> segment);
  static std::size_t bytes_for(int world, std::size_t recorders);
  std::size_t recorder(int rank) const;
  std::size_t at(int rank) const;  // of the ranks' slots
  Words* slots() const { return reinterpret_cast<Words*>(header_ + 1); }
  FlightRecorder* flights() const { return reinterpret_cast<FlightRecorder*>(slots() + world_); }
  Words& slot(int rank) const { return slots()[at(rank)]; }

  Header* header_;
  std::mutex publishing_;  // this process's
  int world_;
  std::vector<int> recorder_of_;            // by rank; -1: none
  std::shared_ptr<SharedSegment> segment_;  // null: ordinary memory
};

}  // namespace peal::comm
