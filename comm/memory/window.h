// SPDX-License-Identifier: Apache-2.0
// Window: memory that the ranks of a group on one node share, and the flags by which they meet
// there (MPI's shared-memory windows, NVSHMEM's and PyTorch's symmetric memory). One-sided programs
// (schedule.h) run on it: it knows where another rank's buffers lie, and makes and awaits signals.
// A group on several nodes has one on each; ranks have the group's numbers in all.
//
// Layout. For each ordered pair of ranks a line with a count of signals, which only grows; it has
// one writer. Beside the count stands what the operation is, and where the writer's buffers lie, or
// all that it has in its room, where that is little (NCCL's LL128, InfiniBand's inline data): so
// the smallest operations move one line of the cache, or a few at once, a rank and peer. And for
// each rank there is a room. Of both there are two halves, for operations of even and odd numbers
// in turn. Why two are enough is said of rooms in schedule.h, and proven of every program.
//
// An operation that a rank thinks to be another one than this rank does is never awaited
// successfully: nobody goes on with the wrong data, and the control plane names both calls.
//
// A buffer is within the others' reach if it lies in memory of allocate(). Of ranks that are
// threads of one process all is.
//
// Thread safety: one thread at a time (the engine's lock), but for allocate(), which is collective
// and one thread's, at any time.
#pragma once

#include <peal/autograd/core/storage.h>
#include <peal/comm/memory/shared_segment.h>
#include <peal/comm/schedule/plan.h>
#include <peal/comm/schedule/schedule.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace peal::comm {

class Window {
 public:
  // Collective over the ranks of the group. `node`: those on this one's node, ascending.
  // NoSharedMemory as SharedSegment's, on all ranks if it is so on any node.
  static std::unique_ptr<Window> create(Rendezvous& ranks, std::vector<int> node);
  ~Window();
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  // Bytes of a rank's room that one operation may use.
  static constexpr std::size_t room_bytes = std::size_t{256} << 10;

  // Zeroed memory of the CPU within the reach of the node; null where all is. Collective over the
  // group: the same calls, of the same size, in the same order on all ranks, or an Error on all of
  // them; so is NoSharedMemory. Children by fork do not have it: what they wrote would be the
  // parent's.
  StorageRef allocate(Rendezvous& ranks, std::size_t bytes);

  // The next operation begins: the same on all ranks, one after the other. `element`: bytes.
  // `signature`: of all that they must agree on. Its buffers lie there; null where this rank has
  // none, which is then said to lie where the other one does.
  void begin(const Plan& plan, std::size_t element, std::uint64_t signature, const std::byte* in,
             const std::byte* out);
  // What this rank did before happens before what `to` does after its await(). Never waits.
  void signal(int to);
  // This rank's signals and memory reach that one: they are on one node.
  bool joins(int rank) const { return place_[static_cast<std::size_t>(rank)] != elsewhere; }
  bool joins_all() const { return node_.size() == place_.size(); }
  // How many ranks it joins.
  int ranks() const { return static_cast<int>(node_.size()); }
  // True where the next signal of `from` has come.
  bool await(int from) { return hears(peers_[static_cast<std::size_t>(from)]); }
  // The same, but one that is on its way is waited for, unless ranks must give way to one another.
  bool await_briefly(int from);
  void give_way() { looks_ = 1; }
  // All buffers of the node's ranks are within reach: the same on all of them. REQUIRES: all have
  // been awaited in this operation.
  bool reaches_all() const;
  // Where that rank's buffer begins; null where it is out of reach, or its rank was not awaited.
  std::byte* reach(int owner, Buffer buffer) const {
    if (buffer == Buffer::room && inline_ > 0 && joins(owner)) {
      const Peer& peer = peers_[static_cast<std::size_t>(owner)];
      return owner == rank_ ? own_room_.bytes : further_ > 0 ? peer.room : peer.from[half()]->room;
    }
    return reach_memory(owner, buffer);
  }

 private:
  // Of a room that goes with the signals: in the first line, and in two. Of a longer one these hold
  // less, and each further one as much, that parts begin where vectors do.
  static constexpr std::size_t in_first = 48, in_pair = 104;
  static constexpr std::size_t in_pair_of_more = 96, in_further = 48, most_further = 4;
  static constexpr std::size_t inline_bytes = in_pair_of_more + most_further * in_further;
  // Where a buffer lies, for others: an address where all are threads of one process, else a
  // segment's number and a place in it.
  using Location = std::uint64_t;

  // Lines of the cache, of operations of one parity. The first two are fetched as a pair.
  struct alignas(128) Line {
    std::atomic<std::uint64_t> count;  // of signals
    std::atomic<std::uint64_t> signature;
    // Written before the operation's first signal.
    union {
      struct {
        std::atomic<Location> in, out;
      } lie;
      std::byte room[in_pair];
    };
    // As the first, where the room goes beyond its line: what each line holds comes with its own
    // count, so all may be on their way at once.
    std::atomic<std::uint64_t> last_count;
    struct alignas(64) Further {
      std::byte room[in_further];
      std::atomic<std::uint64_t> count;
    } further[most_further];
  };
  static_assert(sizeof(Line) == 64 * (2 + most_further));
  struct Heap;
  struct Peer {
    Line *to[2] = {}, *from[2] = {};          // of both halves
    std::uint64_t sent = 0, heard = 0;        // signals
    std::uint64_t told_in = 0, heard_in = 0;  // the last operation in which there was one
    Location in = 0, out = 0;                 // of that operation
    std::byte* room = nullptr;                // what came of it in more than two lines
  };

  static constexpr std::size_t elsewhere = static_cast<std::size_t>(-1);

  Window(std::shared_ptr<SharedSegment> segment, int rank, int world, std::vector<int> node);
  // Of the operation under way.
  std::size_t half() const { return operation_ % 2; }
  void tell(Line& line) const;
  // The same for a room that goes beyond the second line.
  void signal_further(Line& line, std::uint64_t sent) const;
  void tell_further(Line& line) const;
  bool further_came(const Line& line, std::uint64_t heard) const;
  void take_further(const Line& line, std::byte* room) const;
  bool hears(Peer& peer);
  std::byte* reach_memory(int owner, Buffer buffer) const;
  Location locate(const std::byte* address) const;
  std::byte* address(int owner, Location location) const;

  std::shared_ptr<SharedSegment> segment_;
  int rank_;
  std::vector<int> node_;           // the node's ranks
  std::vector<std::size_t> place_;  // by rank: which of these it is
  std::vector<Peer> peers_;         // by rank; of this rank its own locations
  std::uint64_t operation_ = 0, signature_ = 0;
  // Of the operation's room: bytes that go with its signals, and lines beyond the second.
  std::size_t inline_ = 0, further_ = 0;
  struct alignas(64) Room {
    std::byte bytes[inline_bytes];
  };
  mutable Room own_room_;    // of this rank
  std::vector<Room> rooms_;  // what came of others in more than two lines, by place
  int looks_ = 100;  // some microseconds: as long as a meeting of ranks that come together takes
  std::shared_ptr<Heap> heap_;
};

// The smallest collectives consist of these, and of one addition.

inline void Window::signal(int to) {
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  Line& line = *peer.to[half()];
  if (peer.told_in != operation_) {
    peer.told_in = operation_;
    tell(line);
  }
  ++peer.sent;
  line.count.store(peer.sent, std::memory_order_release);
  if (inline_ > in_first) {
    line.last_count.store(peer.sent, std::memory_order_release);
    if (further_ > 0) signal_further(line, peer.sent);
  }
}

inline void Window::tell(Line& line) const {
  line.signature.store(signature_, std::memory_order_relaxed);
  if (inline_ > 0) {
    if (further_ > 0) {
      tell_further(line);
    } else {
      std::memcpy(line.room, own_room_.bytes, inline_);
    }
  } else {
    const Peer& me = peers_[static_cast<std::size_t>(rank_)];
    line.lie.in.store(me.in, std::memory_order_relaxed);
    line.lie.out.store(me.out, std::memory_order_relaxed);
  }
}

inline bool Window::hears(Peer& peer) {
  const Line& line = *peer.from[half()];
  if (inline_ > in_first) {
    if (further_ > 0 && !further_came(line, peer.heard)) return false;
    if (line.last_count.load(std::memory_order_acquire) <= peer.heard) return false;
  }
  if (line.count.load(std::memory_order_acquire) <= peer.heard) return false;
  if (peer.heard_in != operation_) {
    if (line.signature.load(std::memory_order_relaxed) != signature_) return false;
    peer.heard_in = operation_;
    if (inline_ == 0) {
      peer.in = line.lie.in.load(std::memory_order_relaxed);
      peer.out = line.lie.out.load(std::memory_order_relaxed);
    } else if (further_ > 0) {
      take_further(line, peer.room);
    }
  }
  ++peer.heard;
  return true;
}

inline bool Window::await_briefly(int from) {
  Peer& peer = peers_[static_cast<std::size_t>(from)];
  for (int look = 1; !hears(peer); ++look) {
    if (look >= looks_) return false;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  return true;
}

}  // namespace peal::comm
