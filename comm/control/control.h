// SPDX-License-Identifier: Apache-2.0
// Control: the control plane, small, beside the data; so ranks learn that something is wrong. A
// rank that waits asks check() now and then; it throws when a peer's process has died, when a rank
// has poisoned the group (with that rank's own message), or when two ranks' pending operations
// differ.
//
// Peers on the same node are watched through pidfds, which become readable at the moment of death;
// a group and its sub-groups share them. Peers with which this rank shares no memory say by
// messages what they wait for, and why they fail (far_board.h).
//
// A rank may say that it works (Busy): for as long as it does, and its process lives and moves,
// nobody takes the silence for a failure. On its node that is seen; elsewhere it is heard, by
// messages now and then (heartbeat.h). Thread safety: check(), poison(), busy() and what only
// reads, and publish(), from any thread; finished() by one.
#pragma once

#include <peal/autograd/core/fork.h>
#include <peal/comm/control/board.h>
#include <peal/comm/control/far_board.h>
#include <peal/comm/control/heartbeat.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::comm {

// A process to watch: the rank it runs and its id on this node.
struct Peer {
  int rank;
  int pid;
};
// Of this process: ids mean the same only to processes of one namespace.
std::string pid_namespace();

// While it lives, this rank says that it works, and on what: the others' deadlines do not run. One
// that a child by fork inherited says nothing when it goes.
class Busy {
 public:
  // `heart`: null where all ranks see the board.
  Busy(std::shared_ptr<Board> board, int rank, std::string_view what,
       const std::shared_ptr<Heartbeat>& heart);
  ~Busy();
  Busy(Busy&&) = default;
  Busy& operator=(Busy&&) = delete;

 private:
  std::shared_ptr<Board> board_;
  int rank_;
  WorkName before_;
  std::weak_ptr<Heartbeat> heart_;  // it goes with the groups, whose messages it sends
  ForkMark mark_;
};

class Control {
 public:
  // `rank` is the world's, as are all ranks here: sub-groups share the world's board, so that a
  // failure in one is known in all. `here`: the ranks of the group whose slots the board carries.
  Control(std::shared_ptr<Board> board, int rank, std::vector<int> here,
          const std::vector<Peer>& processes);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Of a whole world: reaches the ranks that the board does not carry, over a transport of its
  // ranks. A rank that works says so often enough for their deadline. Collective; before the first
  // operation.
  void reach_far(Transport& world, std::chrono::milliseconds deadline);

  // For a sub-group of these ranks of the world.
  std::unique_ptr<Control> subset(const std::vector<int>& ranks) const;

  // What a rank finished is remembered for a while, for peers that run something else under its
  // number.
  void finished(std::uint64_t group, std::uint64_t sequence, const Finished& what) {
    board_->finished(rank_, group, sequence, what);
  }
  FlightRecorder& flight() { return board_->flight(rank_); }
  bool has_flight(int rank) const { return board_->has_flight(rank); }  // this node's ranks
  const FlightRecorder& flight(int rank) const { return board_->flight(rank); }
  bool take_flight(int from) { return board_->take_flight(rank_, from); }
  int flight_writer() const { return board_->flight_writer(); }
  void end_flight(bool written) { board_->end_flight(rank_, written); }
  bool flight_written() const { return board_->flight_written(); }
  bool take_flight_word() { return board_->take_flight_word(); }
  // This rank, of how many: the world's.
  int rank() const { return rank_; }
  int world() const { return board_->world(); }
  Row own_row() const { return board_->read(rank_).value_or(Row{}); }
  void publish(const Row& row) { board_->publish(rank_, row); }
  // Of a peer without common memory, what it said last.
  std::optional<Row> read(int peer) const;
  // The others of the group.
  std::vector<int> peers() const;
  // Whether a peer, which waits in a call, has come to that one; nothing where that is not known.
  std::optional<bool> has_begun(int peer, std::uint64_t group, std::uint64_t sequence,
                                const CallPlace& waits_in) const;
  // Groups of one world.
  bool shares_board(const Control& other) const { return board_ == other.board_; }
  void poison(const std::string& message) { board_->poison(message, rank_); }
  // To and from ranks without common memory: what this one waits for, and what they do. One that
  // has failed poisons the board. By who may use the transport, one thread at a time.
  void meet_far(const Row& mine);
  // From all of the world that shares none, and alone, once in a second at most: for a rank that
  // never waits.
  void hear_far();
  // The same at once, where a thread beside the program's may.
  void hear_beside() const;
  // That this rank's group has failed, where it is this rank that knows why: to all of the world,
  // for it fails with any of its groups.
  void fail_far();
  std::optional<std::string> poisoned() const { return board_->poisoned(); }
  bool is_poisoned() const { return board_->is_poisoned(); }

  // Of ranks that end with this message: whether this one is to tell people. Each tells what it
  // alone says; what the group was poisoned with is told once on a node, by the rank whose it is,
  // or by another where that one says nothing for a second.
  bool is_to_tell(const std::string& message) const;
  // At the end of a rank that knows of a failure: until all others of its node have come here too,
  // or are gone, but not for longer. A launcher that ends a job with the first rank that fails
  // (mpirun) would else end ranks that have not seen yet what there was.
  void leave(std::chrono::milliseconds patience) const;

  // Of all ranks of the node, and so often, one is to tell people that something stalls.
  bool take_stall_word(std::chrono::milliseconds apart) { return board_->take_stall_word(apart); }

  // Where the ranks of the node count their warnings; null where they are threads of one process.
  std::shared_ptr<ToldWarnings> told_warnings() const;

  [[nodiscard]] Busy busy(std::string_view what = {}) { return {board_, rank_, what, heart_}; }
  // The heart beats no more, whoever works on: when messages come to their end.
  void end_beats();
  // Somebody says that it works: of this node, and its process does not stand still, stopped by a
  // signal (SIGSTOP): that one says so for ever; or elsewhere, lately. The system is asked at most
  // every 10 ms. but_me: who waits himself is kept from no deadline by a word of his own.
  bool anyone_works(bool but_me = false) const;
  // The same of one rank of this node.
  bool works(int rank) const;

  // A peer's process is gone, which may have come to its end; throws and poisons nothing.
  bool anyone_gone() const { return first_gone().has_value(); }
  // Throws Error as said above. Cheap: the system is asked about processes at most every 2 ms.
  void check();
  // Throws where a peer's published row has the sequence of `mine` and another signature, or where
  // what it and this rank have finished before differs. For operations that have been pending for
  // over a second.
  using Describe = std::string (*)(const Finished&, std::uint64_t sequence);
  void compare(const Row& mine, Describe describe) const;
  // Throws: this rank and a peer wait in calls of different groups of both, named in words, each
  // of which the other has not come to.
  [[noreturn]] void fail_crossed(const Row& mine, std::string_view my_group, int peer,
                                 const Row& theirs, std::string_view their_group) const;
  // Throws where what ranks have finished before number `end` differs. Of several that end with
  // this the last sees all.
  void compare_finished(std::uint64_t group, std::uint64_t end, Describe describe) const;
  // What every rank that said something is waiting for, a line each; for a deadline's message.
  std::string describe() const;
  // Those that have said lately that they work, of ranks elsewhere, a line each.
  std::string describe_far_work() const;

 private:
  // The processes of the node, for all groups within one.
  struct Watched {
    struct Process {
      int rank, pid, descriptor;
    };
    std::vector<Process> processes;
    std::vector<Peer> dead_already;  // when this was made
    Watched() = default;
    ~Watched();
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
  };
  Control(std::shared_ptr<Board> board, int rank, std::vector<int> here,
          std::shared_ptr<const Watched> watched);
  static std::shared_ptr<const Watched> watch(int rank, const std::vector<Peer>& processes);
  std::optional<Peer> first_gone() const;
  [[noreturn]] void lament(const Peer& peer);
  std::string describe_here(int peer) const;
  std::string describe_elsewhere(int peer) const;
  std::optional<Finished> finished_by(int peer, std::uint64_t group, std::uint64_t sequence) const;
  void compare_finished(int peer, std::uint64_t group, std::uint64_t end, Describe describe) const;
  void compare(int peer, const Row& mine, Describe describe) const;

  std::shared_ptr<Board> board_;
  int rank_;
  std::vector<int> here_, elsewhere_;  // the group's ranks, by whether the board carries them
  std::vector<int> far_everyone_;      // the world's that it does not
  std::shared_ptr<FarBoard> far_;      // null: it carries all
  std::shared_ptr<Heartbeat> heart_;   // null: nobody elsewhere, or no thread that may tell them
  std::shared_ptr<const Watched> watched_;
  std::atomic<std::chrono::steady_clock::time_point> next_look_{};
  mutable std::atomic<std::chrono::steady_clock::time_point> states_seen_{};
  mutable std::atomic<bool> one_moves_{true};  // then, of those that said that they work
  static constexpr std::chrono::seconds between_hearings{1};
  std::chrono::steady_clock::time_point next_hearing_ =
      std::chrono::steady_clock::now() + between_hearings;
};

}  // namespace peal::comm
