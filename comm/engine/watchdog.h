// SPDX-License-Identifier: Apache-2.0
// Watchdog: the thread that looks after the queues of stream-ordered transports. The host does not
// wait for them, so nobody else would see that a peer is gone, and end what waits for it there. It
// never takes the engine's lock, which whoever feeds a queue may hold for as long as a full one
// stands; it runs, retires and destroys nothing of the users'. It reads what the host publishes of
// each queue (WatchedQueue), asks the control plane, and where waiting is hopeless it poisons the
// group and abandons the transport. The operations fail when the host next looks.
//
// A device whose queue is full may not even answer whether an event is reached. So it is asked only
// where the answer decides (an operation is pending for long, or a peer's process is gone), by a
// thread of that moment, and one that does not answer within a second stands.
//
// Thread safety: what is published, under the engine's lock.
#pragma once

#include <peal/comm/control/control.h>
#include <peal/comm/engine/operation.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace peal::comm {

// The queue of one group's device transport.
class WatchedQueue {
 public:
  // `ended` becomes true, once the group is poisoned, where the watchdog has ended the queue: what
  // is found there then may be no result. REQUIRES: what it refers to lives until
  // Watchdog::forget().
  WatchedQueue(Transport& transport, Control& control, std::string who, std::uint64_t group,
               std::chrono::milliseconds deadline, std::atomic<bool>& ended);
  WatchedQueue(const WatchedQueue&) = delete;
  WatchedQueue& operator=(const WatchedQueue&) = delete;

  // The operation is whole in the queue, behind the others.
  void enqueue(const OperationRef& operation);
  // The host has seen its end, or failed it.
  void dequeue(const Operation& operation);
  // While it lives, the calling thread feeds the queue. Null: none.
  class Feeding {
   public:
    explicit Feeding(WatchedQueue* queue) : queue_(queue) { step(); }
    ~Feeding() { step(); }
    Feeding(const Feeding&) = delete;
    Feeding& operator=(const Feeding&) = delete;

   private:
    void step() {
      if (queue_ != nullptr) queue_->feedings_.fetch_add(1);
    }
    WatchedQueue* queue_;
  };
  // What the watchdog has looked at, for the host to drop.
  std::vector<OperationRef> collect();
  bool has_any_to_collect() const { return any_spent_; }

 private:
  friend class Watchdog;
  using Clock = Operation::Clock;
  enum class Place : std::uint8_t { unknown, before, under_way, over };  // of the device
  struct Question {
    std::vector<OperationRef> about;  // all that were in the queue
    Clock::time_point asked;
    std::size_t first = 0;  // of them that is not over
    std::atomic<Place> answer{Place::unknown};
  };

  // The watchdog's.
  void look() noexcept;
  Clock::duration stood(Clock::time_point now);
  void look_at_queue(Clock::time_point now);
  void ask(Clock::time_point now);
  void take_answer();
  void judge(const Operation& operation, Clock::time_point now);
  void withdraw_row();
  bool is_pending(const OperationRef& operation);
  void close_question();
  void end(const char* message) noexcept;
  void leave();

  Transport& transport_;
  Control& control_;
  const std::string who_;
  const std::uint64_t group_;
  const std::chrono::milliseconds deadline_;

  // Published by the host. The mutex is held for moments only, and for no call of a device.
  std::mutex mutex_;
  std::vector<OperationRef> pending_, spent_;
  std::atomic<bool> any_spent_{false};
  std::atomic<std::uint64_t> oldest_{0};    // counts the first ones; odd while there is one
  std::atomic<std::uint64_t> enqueued_{0};  // counts them all
  std::atomic<std::uint64_t> feedings_{0};  // begun and ended: odd while one is under way

  std::atomic<bool>& ended_;  // by the watchdog

  // The watchdog's own.
  std::uint64_t seen_oldest_ = 0, asked_about_ = 0, seen_feeding_ = 0;
  Clock::time_point fed_{};            // when the last of them changed
  const Operation* judged_ = nullptr;  // whose end the device had not come to, when last asked
  Clock::time_point begun_{};          // since when it is known to have begun
  Clock::time_point next_question_{}, last_work_{};
  bool over_ = false;  // the device has come to the end of all that was in the queue
  std::shared_ptr<Question> question_;
  std::thread asker_;
  Row row_;
  bool row_is_out_ = false;
};

class Watchdog {
 public:
  Watchdog() = default;
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // The thread begins with the first queue.
  void watch(std::shared_ptr<WatchedQueue> queue);
  // When it returns, the watchdog has no more to do with the queue.
  void forget(const std::shared_ptr<WatchedQueue>& queue);

 private:
  void run(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any sleeps_;
  std::vector<std::shared_ptr<WatchedQueue>> queues_;
  std::jthread thread_;  // the last member: it ends before the others do
};

}  // namespace peal::comm
