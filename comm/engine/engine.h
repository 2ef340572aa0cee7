// SPDX-License-Identifier: Apache-2.0
// The engine: makes the operations in flight of one rank go forward, over all of its groups, so
// that a rank that waits for one group still serves the others. It is advanced by whoever waits and
// by every gradient hook, and has no thread of its own (docs/decisions/0003-no-progress-thread.md),
// but for one that looks after the queues of stream-ordered transports: the host does not wait for
// them, so nobody else would see that a peer is gone, and end what waits for it. That thread, the
// guard, runs and destroys nothing of the users': what it has ended, the next to call drops.
// Where a queue takes no more, behind a kernel that waits for a peer, whoever calls the device
// stands, with the engine's lock, and the guard behind it. So a second thread looks whether the
// guard does, and then ends the kernels of groups that have failed, with neither lock nor device.
//
// A rank that waits first spins, then yields its core; at once where the node has more ranks than
// cores. Thread safety: every public function takes the engine's lock. Continuations run without
// it, one at a time and in the order in which their operations retired, on the thread that advances
// first: others leave them to it. One that waits lets those behind it run meanwhile. An exception
// of theirs is thrown by wait() on the work they were given to; who waits for that waits for them.
#pragma once

#include <peal/comm/engine/lane.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace peal::comm {

class Engine {
  using steady_clock = std::chrono::steady_clock;

 public:
  // `crowded`: the node has more ranks than cores, so waiting ranks yield at once.
  explicit Engine(bool crowded) : crowded_(crowded) {}

  void submit(const OperationRef& operation);
  // Puts the operation, whole, into the graph that the calling thread captures (captured.h). Error
  // that poisons nobody where that fails.
  void capture(const OperationRef& operation);
  // Until all operations that devices move, of any group, are in their queues. Error where the
  // lane's group has failed.
  void hand_over(const std::shared_ptr<Lane>& lane);
  // One pass over everything in flight.
  void progress();
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Until the operation has settled, or is handed over to a device; throws its error.
  void wait(Operation& operation) { wait_until(operation, true); }
  // Until the operation has settled; throws its error.
  void synchronize(Operation& operation) { wait_until(operation, false); }
  // Gives the lane a transport of a device. From then on, if it is stream-ordered, a thread looks
  // after the queues of all lanes.
  void attach(const std::shared_ptr<Lane>& lane, std::unique_ptr<Transport> transport);
  // True once it has settled. Makes progress, and looks at the control plane every millisecond.
  bool test(Operation& operation);
  // At once if it has retired, else when it does. Dropped where it has failed.
  void then(const OperationRef& operation, std::function<void()> f);
  // Of the world that is recorded, for the groups within it (Lane::set_recorder()).
  void set_recorder(std::shared_ptr<Recorder> recorder) { recorder_ = std::move(recorder); }
  const std::shared_ptr<Recorder>& recorder() const { return recorder_; }
  // Forgets the lane and its operations; those that are handed over end first, or are ended where
  // a rank has `failed`.
  void remove(const std::shared_ptr<Lane>& lane, bool failed);

 private:
  // f(what lanes let go of) under the lock; then what is due is run, and the rest dropped.
  enum class Nesting { starts, waits };
  template <class F>
  void locked(Nesting nesting, F f);
  void run_due(Nesting nesting);
  void wait_until(Operation& operation, bool handed_over);
  bool is_over(const Operation& operation) const;
  void guard(const std::stop_token& stop);
  void relieve(const std::stop_token& stop);
  void look(Operation& operation);

  std::mutex mutex_;
  std::vector<std::shared_ptr<Lane>> lanes_;
  Lane::Ended ended_;  // by the guard
  std::deque<Lane::Ready> due_;
  // The thread that runs continuations, and of which operations, the innermost last.
  std::atomic<std::thread::id> runner_{};
  std::vector<const Operation*> running_;
  std::shared_ptr<Entrance> entrance_ = std::make_shared<Entrance>();
  std::shared_ptr<Recorder> recorder_;
  bool crowded_;
  std::condition_variable_any guard_sleeps_;
  // Of lanes with a stream-ordered transport, for who cannot have the engine's lock.
  std::mutex guarded_mutex_;
  std::vector<Lane*> guarded_;
  std::atomic<steady_clock::time_point> guard_began_{};  // its look; 0: it sleeps
  std::jthread guard_, relief_;  // the last members: they end before the others do
};

}  // namespace peal::comm
