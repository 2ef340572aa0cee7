// SPDX-License-Identifier: Apache-2.0
// Engine: the progress engine. It makes the operations in flight of one rank go forward, over all
// of its groups, so that a rank that waits for one group still serves the others. It is advanced by
// whoever waits, by every gradient hook, and by collectives that end where they are submitted
// (docs/decisions/0003-no-progress-thread.md). Between
// nodes, where data travels while the CPU computes, it has a thread for that too
// (progress_thread.h), which runs no continuation and drops nothing of the users'. With
// stream-ordered transports it has a watchdog (watchdog.h), for what lies in queues where nobody
// waits on the host.
//
// A rank that waits first spins, then yields its core; at once where the node has more ranks than
// cores. Thread safety: every public function takes the engine's lock, but for set_recorder() and
// recorder(): the thread that issues collectives. Continuations run without it, one at a time and
// in the order in which their operations retired, on the thread that advances first: others leave
// them to it. One that waits lets those behind it run meanwhile. An exception of theirs is thrown
// by wait() on the work they were given to; who waits for that waits for them.
#pragma once

#include <peal/autograd/core/fork.h>
#include <peal/comm/engine/branch.h>
#include <peal/comm/engine/lane.h>
#include <peal/comm/engine/progress_thread.h>
#include <peal/comm/engine/watchdog.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace peal::comm {

class Engine {
 public:
  // `crowded`: the node has more ranks than cores, so waiting ranks yield at once.
  explicit Engine(bool crowded) : crowded_(crowded) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  bool crowded() const { return crowded_; }
  // The lane of a new group.
  void add(const std::shared_ptr<Lane>& lane);
  void submit(const OperationRef& operation);
  // As Lane's. Numbers are taken by any thread: by who calls, and by who runs a continuation
  // meanwhile.
  Channel next_channel(Lane& lane, std::uint64_t signature, std::uint64_t* window_turn = nullptr);
  Branch branch(Lane& lane);
  std::uint64_t sequence(const Lane& lane);
  // Runs a collective now, where nothing else is under way (Lane::exchange()).
  Exchange exchange(Lane& lane, const Immediate& what, const std::byte* in, std::byte* out,
                    std::size_t bytes, std::string_view label);
  // The same of an all_reduce that is known; refused where it is not.
  Exchange exchange_known(Lane& lane, const AllReduceKey& what, const std::byte* in, std::byte* out,
                          std::size_t bytes, std::string_view label);
  void know(Lane& lane, const CollectiveCall& call, Immediate what);
  // Counts a call that has nothing to do.
  void count(Lane& lane, const CollectiveCall& call);
  OperationCounters counters(const Lane& lane);
  // Puts the operation, whole, into the graph that the calling thread captures (captured.h). Error
  // that poisons nobody where that fails.
  void capture(const OperationRef& operation);
  // Until all operations that devices move, of any group, are in their queues. Error where the
  // lane's group has failed.
  void hand_over(const std::shared_ptr<Lane>& lane);
  // One pass over everything in flight.
  void progress();

  // Until the operation has settled, or is handed over to a device; throws its error.
  void wait(Operation& operation) { wait_until(operation, true); }
  // The same, or an Error once so much time has passed; the operation goes on.
  void wait(Operation& operation, std::chrono::milliseconds timeout) {
    wait_until(operation, true, timeout);
  }
  // Until the operation has settled; throws its error.
  void synchronize(Operation& operation) { wait_until(operation, false); }
  // Gives the lane a transport of a device. If it is stream-ordered, the watchdog looks after its
  // queue from then on.
  void attach(const std::shared_ptr<Lane>& lane, std::unique_ptr<Transport> transport);
  // True once it has settled. Makes progress, and looks at the control plane every millisecond.
  bool test(Operation& operation);
  // Of that number, and of the same world. REQUIRES: the lock.
  const Lane* lane_of(std::uint64_t id, const Control& world) const;
  // An operation in flight, of any group, whose buffers clash with those of one that begins; null:
  // none. REQUIRES: the lock.
  const Operation* clashing(const Operation& operation) const;
  // At once if it has retired, else when it does. Dropped where it has failed.
  void then(const OperationRef& operation, std::function<void()> f);
  // Poisons the group; the ranks that do not see its board are told, too.
  void poison(const Lane& lane, const std::string& message);
  // The same; what is in flight in the lane fails now.
  void abort(const std::shared_ptr<Lane>& lane, const std::string& message);
  // While it lives, nothing goes forward.
  [[nodiscard]] std::unique_lock<std::mutex> hold() { return std::unique_lock(mutex_); }
  // Of the world that is recorded, for the groups within it (Lane::set_recorder()).
  void set_recorder(std::shared_ptr<Recorder> recorder) { recorder_ = std::move(recorder); }
  const std::shared_ptr<Recorder>& recorder() const { return recorder_; }
  // The lane's group has gone: its operations go on, and the last of them takes the lane along;
  // those that are handed over to a device end first. All of them end with an error where a rank
  // has `failed`, and so do all lanes' with the last group, for nobody advances them any more: if
  // there are collectives among that group's, the other ranks are told.
  void remove(const std::shared_ptr<Lane>& lane, bool failed);
  // From here on nothing advances but with who waits: the libraries below come to their end.
  void end_beside();
  // The recorder's write(), while nothing advances.
  void write(Recorder& recorder);

 private:
  // f(what lanes let go of) under the lock; then what is due is run, and the rest dropped.
  enum class Nesting { starts, waits };
  template <class F>
  void locked(Nesting nesting, F f);
  void run_due(Nesting nesting);
  void part_with_lanes(Lane::Ended& ended);
  bool may_exchange(Lane& lane) const;
  void wait_until(Operation& operation, bool handed_over,
                  std::optional<std::chrono::milliseconds> timeout = {});
  void give_up(Operation& operation, std::chrono::milliseconds timeout);
  void note_wait(const Operation& operation, std::chrono::nanoseconds time);
  bool advance_beside();
  bool is_over(const Operation& operation) const;
  enum class Waits { for_a_while, to_the_end };
  void look(Operation& operation, Waits waits = Waits::for_a_while);
  void note_thread();

  std::mutex mutex_;
  std::vector<std::shared_ptr<Lane>> lanes_;
  std::size_t groups_ = 0, released_ = 0;  // lanes that have a group, and those that had one
  std::deque<Lane::Ready> due_;
  std::vector<Lane::Ready> left_;  // by the progress thread, to be dropped by another
  // The thread that runs continuations, and of which operations, the innermost last.
  std::atomic<std::thread::id> runner_{};
  std::vector<const Operation*> running_;
  std::atomic<std::thread::id> user_{};  // the first thread that used a group, and waited
  std::atomic<bool> several_use_{false};
  std::shared_ptr<Entrance> entrance_ = std::make_shared<Entrance>();
  std::shared_ptr<Recorder> recorder_;
  bool crowded_;
  ForkMark mark_;
  // The last members: they end before the others do.
  Watchdog watchdog_;
  std::unique_ptr<ProgressThread> beside_;  // null: nothing was ever there for it
  bool alone_ = false;                      // end_beside()
};

}  // namespace peal::comm
