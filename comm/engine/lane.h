// SPDX-License-Identifier: Apache-2.0
// Lane: an operation queue, all that one group has in flight. Operations run concurrently;
// collectives retire (become done, run their continuations) in the order in which they were issued,
// so that ranks agree on what happens when. Messages between two ranks retire when they are done.
//
// Over a stream-ordered transport one operation after the other is put into the device's queue,
// whole; those of all groups of the process in the order of their calls (Entrance).
//
// What dies here may hold anything, tensors of libraries and groups too, whose destructors wait,
// speak to MPI, or come back to the engine. So whatever a lane lets go of, it hands to its caller,
// to be dropped without the lock, and never by the watchdog.
//
// A lane also knows when waiting has become hopeless: a peer's process is dead, the group is
// poisoned, nothing has moved for as long as the deadline allows, or another rank runs another
// operation under the same number. Thread safety: the engine's lock.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/comm/control/control.h>
#include <peal/comm/engine/immediate.h>
#include <peal/comm/engine/operation.h>
#include <peal/comm/engine/watchdog.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

class Branch;
class Engine;

// Launch order across communicators: the line before the queues of devices, which must be fed in
// one order on all ranks: a communicator may take what another needs, and hold it until its peers
// come. So operations of all groups enter in the order of their calls, however late their libraries
// are, and a program that calls them in one order on all ranks cannot be stuck there.
class Entrance {
 public:
  void join(const Operation& operation) { line_.push_back(&operation); }
  bool is_next(const Operation& operation) const { return line_.front() == &operation; }
  // It is whole in its queue, or has failed.
  void leave(const Operation& operation) { std::erase(line_, &operation); }

 private:
  std::deque<const Operation*> line_;
};

class Lane : public std::enable_shared_from_this<Lane> {
 public:
  // A continuation, and of what.
  struct Ready {
    OperationRef operation;
    std::function<void()> f;
  };
  // What the lane lets go of.
  struct Ended {
    std::vector<Ready> gone{};                               // to be dropped, not run
    std::vector<Ready> due{};                                // to be run, in this order
    std::vector<std::shared_ptr<WatchedQueue>> unwatched{};  // for the watchdog to forget
    std::vector<std::shared_ptr<Lane>> lanes{};              // that have left the engine
  };

  // `who` is this rank in messages: "rank 2". `id` tells groups apart.
  Lane(std::shared_ptr<Engine> engine, std::unique_ptr<Transport> transport,
       std::unique_ptr<Control> control, std::chrono::milliseconds deadline, std::string who,
       std::uint64_t id);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  // A number that no other lane of the process has or had, nor is it 0. So who must not keep a lane
  // finds it again: null once its group has gone, and its operations.
  std::uint64_t serial() const { return serial_; }
  static std::shared_ptr<Lane> find(std::uint64_t serial);
  // Whose operations these are. It has the lane until its group has gone, and its operations too.
  Engine& engine() const { return *engine_; }
  Transport& transport() const { return *transport_; }
  // That of a device beside it, or null.
  Transport* device_transport() const { return device_transport_.get(); }
  // Gives the one before it back. The entrance is that of all groups of the process, and so is the
  // watchdog, which looks after the queue from now on if the transport is stream-ordered.
  std::unique_ptr<Transport> set_device_transport(std::unique_ptr<Transport> transport,
                                                  std::shared_ptr<Entrance> entrance,
                                                  Watchdog& watchdog, Ended& ended);
  // Memory that the group's ranks share; null where they have none. Set once, before the first
  // operation that uses it.
  Window* window() const { return window_.get(); }
  void set_window(std::unique_ptr<Window> window) { window_ = std::move(window); }
  CopyStreams& copies() { return copies_; }
  Control& control() const { return *control_; }
  const std::string& who() const { return who_; }
  std::chrono::milliseconds deadline() const { return deadline_; }
  std::uint64_t id() const { return id_; }
  // Where its operations leave their times; null: nowhere. Not while another thread submits.
  void set_recorder(std::shared_ptr<Recorder> recorder) { recorder_ = std::move(recorder); }
  const std::shared_ptr<Recorder>& recorder() const { return recorder_; }
  bool pending() const { return !queue_.empty(); }
  // In messages: "the world", "the group of ranks 0, 2".
  void set_group_name(std::string name) { group_name_ = std::move(name); }
  // Before the first operation.
  void set_stall_warning(std::chrono::milliseconds after) { stall_warning_ = after; }
  // Its ranks are on several nodes. Before the first operation.
  void set_several_nodes() { several_nodes_ = true; }
  // A thread beside the program's advances it.
  bool advances_beside() const {
    return !device_transport_ && transport_->travels_beside(several_nodes_);
  }
  // advance() has something to do.
  bool wants_advance() const { return pending() || (watched_ && watched_->has_any_to_collect()); }
  // The watchdog has ended the device's queue: what it finds there fails at the next advance().
  // Any thread may ask.
  bool ended_by_watchdog() const { return ended_by_watchdog_; }
  // How many collectives were issued.
  std::uint64_t sequence() const { return sequence_; }
  // The next one's, by its own signature. A channel's signature is of all calls so far: once ranks
  // have differed, nothing of theirs meets any more, so that a difference which nobody had to wait
  // for is found by the next who waits.
  // Of an operation that uses the window also its turn there: the turns are in the order of
  // numbers.
  Channel next_channel(std::uint64_t signature, std::uint64_t* window_turn = nullptr);
  // Numbers for what a continuation will start, and have it numbered alike on all ranks.
  Branch branch();
  // Throws where a rank of this node has finished another operation under a number before `end`
  // than this one.
  void compare_finished(std::uint64_t end) const;
  // Throws what ended the group.
  void check() const;
  // The first operation of a device's transport that is not whole in the queue; null: none.
  OperationRef entering() const;

  // Error when the group has failed. Does what can be done at once for this operation alone.
  void submit(const OperationRef& operation, Ended& ended);
  // Does what can be done without waiting.
  void advance(Ended& ended);
  // The same of what devices have no part in. True where some of that is left.
  bool advance_hosts(Ended& ended);
  // Runs it; refused where anything else is under way. An operation must go on with one that is
  // begun. `in`, `out`: as Window::begin; `bytes`: of `out`; `label`: for the flight recorder.
  // Error when the group fails.
  Exchange exchange(const Immediate& what, const std::byte* in, std::byte* out, std::size_t bytes,
                    std::string_view label);
  ImmediateAllReduces& all_reduces() { return all_reduces_; }
  // Of all that was begun here.
  OperationCounters& counters() { return counters_; }
  const OperationCounters& counters() const { return counters_; }
  // Looks whether waiting for the operation is still worth it; if not, everything in the lane
  // fails. `alone`: as Row's.
  void watch(Operation& waited, bool alone, Ended& ended);
  // Why who waits for it goes on without it, for which it has waited for so long; tells the others
  // what that is. Until somebody waits for it again, its deadline does not run.
  std::string not_done_after(Operation& waited, std::chrono::milliseconds timeout);
  void fail_all(const std::string& message, Ended& ended);
  // Of a group that is poisoned: to ranks that do not see its board. Never waits.
  void tell_failure();
  // After a failure: the transports wait for nobody any more.
  void abandon();
  // The watchdog has no more to do with it, once its queue is forgotten.
  void leave(Ended& ended);
  // Its group has gone: what is in flight goes on, and nothing is submitted any more.
  void release() { released_ = true; }
  bool released() const { return released_; }
  // An operation of this one's whose buffers clash with those of another, which begins; null: none.
  // Of those that have no order with it, or `in_order`, of those before it in a device's queue.
  const Operation* clashing(const Operation& with, bool in_order = false) const;
  // The first collective of the calls that is in flight; null: none.
  OperationRef in_turn() const;
  // Puts it, as far as it goes, into the graph that is captured; true once it is whole there.
  // Error, with the reason, where the watchdog has ended what it waited for.
  bool capture(Operation& operation);
  // An operation of which all that is left lies in queues of devices; null where there is none.
  OperationRef handed_over() const;

 private:
  std::string needs_of(const Operation& operation) const;
  void check_apart(const Operation& operation) const;
  Row publish_row_of(const Operation& pending, bool alone);
  void compare_groups(const Row& mine) const;
  void warn_of_stall(Operation& waited, Operation::Clock::duration idle);
  void fail_by(const Operation& operation, const std::exception& error, Ended& ended);
  void let_go(const OperationRef& operation, Ended& ended);
  void retire(const OperationRef& operation, Ended& ended);
  void retire_complete(Ended& ended);
  bool advance(const OperationRef& operation, Ended& ended);
  Channel number(std::uint64_t signature, std::uint64_t* window_turn);
  void collect(Ended& ended);

  const std::uint64_t serial_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Control> control_;  // transports ask it to their end
  std::unique_ptr<Transport> transport_, device_transport_;
  std::unique_ptr<Window> window_;
  std::uint64_t window_turns_ = 0, window_turn_ = 0;  // given to operations; whose it is
  std::shared_ptr<Entrance> entrance_;                // null without a device's transport
  std::shared_ptr<WatchedQueue> watched_;             // null without a stream-ordered one
  std::atomic<bool> ended_by_watchdog_{false};
  CopyStreams copies_;
  std::chrono::milliseconds deadline_, stall_warning_{10'000};
  std::string who_, group_name_;
  std::uint64_t id_;
  std::uint64_t sequence_ = 0, history_ = 0;  // and the signatures of all so far
  std::shared_ptr<Recorder> recorder_;
  std::deque<OperationRef> queue_;
  ImmediateAllReduces all_reduces_;
  OperationCounters counters_;
  // Sends whose data is still on its way from a device: later ones must not overtake them.
  std::vector<const Operation*> late_;
  std::string broken_;  // the message that ended the group
  Operation::Clock::time_point last_progress_{}, next_comparison_{};
  Operation::Clock::time_point last_work_{};  // when another rank was last seen to work
  bool row_is_out_ = false;                   // the board shows an operation of this lane
  bool released_ = false, several_nodes_ = false;
};

}  // namespace peal::comm
