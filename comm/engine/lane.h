// SPDX-License-Identifier: Apache-2.0
// Lane: one group's operations in flight. They run concurrently; collectives retire (become done,
// run their continuations) in the order in which they were issued, so that ranks agree on what
// happens when. Messages between two ranks retire when they are done.
//
// Over a stream-ordered transport one operation after the other is put into the device's queue,
// whole; those of all groups of the process in the order of their calls (Entrance).
//
// What dies here may hold anything, tensors of libraries and groups too, whose destructors wait,
// speak to MPI, or come back to the engine. So whatever a lane lets go of, it hands to its caller,
// to be dropped without the lock, and never by the engine's own thread.
//
// A lane also knows when waiting has become hopeless: a peer's process is dead, the group is
// poisoned, nothing has moved for as long as the deadline allows, or another rank runs another
// operation under the same number. Thread safety: the engine's lock.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/comm/control/control.h>
#include <peal/comm/engine/execution.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace peal::comm {

struct Operation {
  using Clock = std::chrono::steady_clock;

  Operation(Call call, std::shared_ptr<const Plan> plan, Transport& transport, Channel channel,
            CopyStreams& copies, std::size_t segment)
      : channel(channel),
        execution(std::move(call), std::move(plan), transport, channel, copies, segment) {}

  Channel channel;
  std::string label;  // what the caller says it is for: "bucket 3: fc1.weight, fc1.bias"
  Execution execution;
  Clock::time_point started = Clock::now(), finished{};
  Clock::time_point first_look{};    // since when somebody has waited for it
  std::atomic<bool> ordered{false};  // it has tensors on a device, and is handed over
  bool captured = false;             // it lies in a graph (captured.h)
  bool complete = false;             // its elements are there
  std::atomic<bool> retired{false};  // and so are those of all before it, or it failed
  std::exception_ptr error;
  std::vector<std::function<void()>> continuations;
};
using OperationRef = std::shared_ptr<Operation>;

// As describe(Call) of executor.h: what errors call it.
std::string describe(const Operation& operation);

// A hash of what all ranks must agree on: collective, type, reduction, root, counts. Ranks that
// disagree use different channels, so their messages never meet.
std::uint64_t signature(const Call& call);

// The line before the queues of devices. Communicators of one device must be fed in one order on
// all ranks: each may take what the other needs, and hold it until its peers come. So operations of
// all groups enter in the order in which they were called, however late their libraries are, and a
// program that calls them in one order on all ranks cannot be stuck there.
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
  // An operation that the lane has let go of, and, where there is one, a continuation whose turn
  // has come. That is dropped, not run, where the operation failed.
  struct Ready {
    std::shared_ptr<Lane> lane;  // whose transports the operation uses, to its end
    OperationRef operation;
    std::function<void()> f;
  };

  // `who` is this rank in messages: "rank 2". `id` tells groups apart.
  Lane(std::unique_ptr<Transport> transport, std::unique_ptr<Control> control,
       std::chrono::milliseconds deadline, std::string who, std::uint64_t id);
  Transport& transport() const { return *transport_; }
  // The stream-ordered one beside it, or null.
  Transport* device_transport() const { return device_transport_.get(); }
  // Gives the one before it back. The entrance is that of all groups of the process.
  std::unique_ptr<Transport> set_device_transport(std::unique_ptr<Transport> transport,
                                                  std::shared_ptr<Entrance> entrance);
  CopyStreams& copies() { return copies_; }
  Control& control() const { return *control_; }
  const std::string& who() const { return who_; }
  std::uint64_t id() const { return id_; }
  // Where its operations leave their times; null: nowhere. Not while another thread submits.
  void set_recorder(std::shared_ptr<Recorder> recorder) { recorder_ = std::move(recorder); }
  const std::shared_ptr<Recorder>& recorder() const { return recorder_; }
  bool pending() const { return !queue_.empty(); }
  // How many operations were issued, and the next one's number.
  std::uint64_t sequence() const { return sequence_; }
  std::uint64_t next_sequence() { return sequence_++; }
  // Throws what ended the group.
  void check() const;
  // The first operation of a device's transport that is not whole in the queue; null: none.
  OperationRef entering() const;

  // Error when the group has failed.
  void submit(const OperationRef& operation, std::vector<Ready>& ready);
  // Does what can be done without waiting.
  void advance(std::vector<Ready>& ready);
  // Looks whether waiting for the operation is still worth it; if not, everything in the lane
  // fails.
  void watch(const OperationRef& waited, std::vector<Ready>& ready);
  void fail_all(const std::string& message, std::vector<Ready>& ready);
  // After a failure: the transports wait for nobody any more.
  void abandon();
  // An operation of which all that is left lies in queues of devices; null where there is none.
  OperationRef handed_over() const;
  // watch() for the first operation that a device's queue has come to and not left, if there is
  // one: for a thread that looks after queues for which no other waits.
  void watch_device(std::vector<Ready>& ready);
  // Where nobody has been able to look for so long: ends what lies in the device's queue if the
  // group has failed, or its deadline is over. Not under the engine's lock. REQUIRES: a transport
  // of a device, which nobody replaces meanwhile.
  void relieve(std::chrono::steady_clock::duration stood);

 private:
  std::string needs_of(const Operation& operation) const;
  Row row_of(const Operation& operation) const;
  void fail_by(const Operation& operation, const Error& error, std::vector<Ready>& ready);
  void let_go(const OperationRef& operation, std::vector<Ready>& ready);
  void retire(std::deque<OperationRef>::iterator place, std::vector<Ready>& ready);

  std::unique_ptr<Transport> transport_, device_transport_;
  std::shared_ptr<Entrance> entrance_;  // null without a device's transport
  CopyStreams copies_;
  std::unique_ptr<Control> control_;
  std::chrono::milliseconds deadline_;
  std::string who_;
  std::uint64_t id_;
  std::uint64_t sequence_ = 0;
  std::shared_ptr<Recorder> recorder_;
  std::deque<OperationRef> queue_;
  std::string broken_;  // the message that ended the group
  Operation::Clock::time_point last_progress_{}, next_comparison_{};
  bool row_is_out_ = false;  // the board shows an operation of this lane
};

}  // namespace peal::comm
