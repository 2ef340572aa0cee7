// SPDX-License-Identifier: Apache-2.0
// Transport: moves the messages of one round of a program, and nothing else. This is all that a new
// backend writes. Everything above (schedules, executor, process group) is the same for all of
// them.
//
// Messages that are posted together complete together, as one ticket; a round may be several
// tickets, which are tested in any order. Between two ranks, the messages of
// one direction and one channel match in the order in which they were posted; an operation has a
// channel of its own, so operations never mix. A message whose size differs from what the receiver
// expects is an Error that names both. A receive from any source takes part in that order: it gets
// the next message of the channel from whichever rank, and later receives none that it could have.
//
// Thread safety: one thread at a time (the engine's lock), but for abandon() and
// DeviceQueue::check().
#pragma once

#include <peal/autograd/core/dtype.h>
#include <peal/autograd/core/storage.h>
#include <peal/autograd/core/stream.h>
#include <peal/comm/reduce/reduce_op.h>
#include <peal/comm/schedule/schedule.h>
#include <peal/comm/transport/queue_tail.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace peal::comm {

// An operation's own channel. Ranks whose operations differ (another type, count, reduction or root
// under the same number) have different channels, so their messages never match; the control plane
// then names both.
struct Channel {
  std::uint64_t sequence = 0;   // within the group
  std::uint64_t signature = 0;  // of everything that ranks must agree on
  bool operator==(const Channel&) const = default;
};
using Ticket = std::uint64_t;  // what was posted together

struct Message {
  Direction direction;
  int peer;
  std::byte* data;  // valid and untouched by others until the ticket tests true
  std::size_t bytes;
  int* source = nullptr;  // a receive's: who sent it, written before the ticket tests true
};
// "16 B from rank 1, rank 2 to take 4 B": what a rank waits for, the first few of them.
std::string describe(std::span<const Message> messages);

// A whole collective for a library that brings its own (MPI_Iallreduce, ncclAllReduce). Counts as
// in Problem.
struct NativeCall {
  Collective what;
  DType dtype;
  ReduceOp op;
  int root;
  std::span<const std::int64_t> counts;
  const std::byte* in;
  std::byte* out;
  double factor = 1;  // premul_sum
};

// The optional parts of a transport. One that stands before another hands on those of that other,
// or its own.

// A library's own collectives.
class NativeCollectives {
 public:
  virtual ~NativeCollectives() = default;
  // Whether there is one for these arguments: the same on all ranks, so buffers have no say.
  virtual bool has(const NativeCall& call) const = 0;
  // Starts it. REQUIRES: has(call).
  virtual Ticket start(const NativeCall& call) = 0;
  // Whether start() itself divides (avg) or multiplies (premul_sum).
  virtual bool scales(const NativeCall& call) const = 0;
  // Every sum is made at once, from rank 0 to the last, whatever the sizes: deterministic mode
  // takes it.
  virtual bool sums_by_rank() const { return false; }
};

// The device on which messages lie, and its queue. Most are *stream-ordered* (NCCL): what is posted
// lies in the queue, so rounds and the kernels between them follow one another there without the
// host. A round is done, for test(), when it is in the queue; what comes after it in the queue
// finds its messages there. Their rounds match in the order of posting alone, whatever the channel:
// operations are posted one after the other, in the same order on all ranks. They go into the
// current stream of the thread that posts them: the executor makes that the queue's own or, where a
// caller wants it, the caller's. A transport of a device that is not stream-ordered
// (mpi/device_aware.h) is as those of the CPU are, and its queue takes the kernels.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  virtual Device device() const = 0;
  virtual Stream stream() const = 0;
  // Of all that goes into that stream, of sub-groups that share it too, or into others instead.
  virtual QueueTail& tail() = 0;
  virtual bool stream_ordered() const = 0;
  // What is put into the queue may lie in a graph that is replayed (captured.h).
  virtual bool capturable() const = 0;
  // Throws Error where the library below has failed meanwhile. From any thread; it says nothing
  // where it would have to wait for another.
  virtual void check() = 0;
};

// What each rank says, by rank. Collective over the ranks of the group, on the CPU's side.
using EveryRank = std::function<std::vector<std::string>(const std::string& mine)>;

// Memory that the library below knows.
class SymmetricMemory {
 public:
  virtual ~SymmetricMemory() = default;
  // Zeroed memory of the device that needs no copies of its own; null, then on all ranks, where one
  // of them has no such thing: of memory that some ranks' libraries know and others' do not, they
  // promise nothing. The same calls in the same order on all ranks, who agree by `every`.
  virtual StorageRef allocate(std::size_t bytes, const EveryRank& every) = 0;
};

class Transport {
 public:
  struct Limits {
    // How long a rank that waits may sleep between two looks: 0 where looking often is worth it.
    std::chrono::microseconds nap{0};
    // The most bytes that a receive from any source can take.
    std::size_t most_from_any = std::numeric_limits<std::size_t>::max();
  };

  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual Limits limits() const = 0;

  // Error where the calling thread may not use it. Whoever uses it asks first: it is the caller's
  // mistake, and no failure of what is under way.
  virtual void check_thread() const = 0;

  // Messages travel while the CPU computes, and another thread of the process may use it beside
  // whatever the program does. `several_nodes`: its ranks are on more than one.
  virtual bool travels_beside(bool several_nodes) const {
    static_cast<void>(several_nodes);
    return false;
  }

  // The same over some ranks of this transport, in this order; null on those that are not listed.
  // Collective over all of them, and lists that are given together have no rank in common; `id` is
  // equal among the ranks of a list and differs from other lists'.
  virtual std::unique_ptr<Transport> subset(const std::vector<int>& ranks, std::uint64_t id) = 0;

  // Starts the messages; never blocks.
  virtual Ticket post(Channel channel, std::span<const Message> round) = 0;
  // True once every message of the ticket is done; the ticket is then dead. Makes progress.
  virtual bool test(Ticket ticket) = 0;
  // Gives up a ticket whose operation failed. False when the library below may still touch the
  // message's memory: the caller then keeps it for ever.
  virtual bool cancel(Ticket ticket) = 0;
  // What a ticket still waits for, for messages about ranks that are stuck.
  virtual std::vector<Message> open(Ticket ticket) const = 0;
  // What throws where another rank has failed, for those functions that wait.
  virtual void set_hopeless(std::function<void()> hopeless) = 0;
  // After a failure: the destructor must wait for nobody, and what is in the device's queue ends.
  // Of a stream-ordered one from any thread, also while another stands in post() or test().
  virtual void abandon() = 0;
  // After that, where the process ends without destructors: what ranks of other nodes are to be
  // told goes, for a moment at most. Nothing is posted afterwards.
  virtual void leave() {}

  // Its parts, null where it has none.
  virtual NativeCollectives* native() = 0;
  virtual DeviceQueue* queue() = 0;  // null: messages lie on the CPU
  virtual SymmetricMemory* memory() = 0;

  // In short.
  Device device() { return queue() == nullptr ? Device{} : queue()->device(); }
  bool stream_ordered() { return queue() != nullptr && queue()->stream_ordered(); }
  bool has_native(const NativeCall& call) { return native() != nullptr && native()->has(call); }
};

}  // namespace peal::comm
