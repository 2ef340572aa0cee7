// SPDX-License-Identifier: Apache-2.0
// Staging: bounce buffers. How tensors on a device are copied to and from page-locked memory, where
// transports of the CPU reach them; and event ordering, how an operation takes its place among what
// the caller has queued on a device (CallerOrder).
//
// Copies have two queues of their own for each group and device, one for each direction, so that
// they run beside the caller's work and beside each other. They follow what the caller had queued
// when it called, and what the caller queues after Work::wait() follows them. Thread safety: one
// thread at a time (the engine's lock), but for CallerOrder::order().
#pragma once

#include <peal/autograd/core/stream.h>
#include <peal/autograd/core/view.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace peal::comm {

// Between which places of the caller's queues an operation lies.
class CallerOrder {
 public:
  // The operation comes after what the calling thread's current stream of the device holds now.
  void follow(Device device);
  // The operation goes into that stream, which is the calling thread's current one.
  void stay(const Stream& stream);
  // What `stream` gets from now on comes after that.
  void enter(const Stream& stream) const;
  // The operation ends where `stream` ends now.
  void leave(const Stream& stream);
  // True where the operation may begin: the caller's work before it is done.
  bool may_begin() const;
  // True once all places where it ends are reached.
  bool is_over() const;
  // What the calling thread's current streams get from now on comes after the operation. REQUIRES:
  // leave() is not called any more.
  void order() const;

 private:
  std::vector<std::pair<Device, Event>> before_;
  std::optional<Stream> stays_;
  std::vector<Event> after_;
};

// A group's queues for copies.
class CopyStreams {
 public:
  struct Pair {
    Stream down, up;  // to the CPU, and from it
  };
  const Pair& of(Device device);

 private:
  std::vector<std::pair<Device, Pair>> pairs_;
};

// The copies of one operation.
class Staging {
 public:
  Staging(CopyStreams& streams, const CallerOrder& caller) : streams_(streams), caller_(caller) {}
  // `to` and `from` are page-locked memory of the view's size, or the copy is slow.
  void down(std::byte* to, const View& from);
  void up(const View& to, const std::byte* from);
  // The copies down so far, as a number for arrived().
  std::size_t mark();
  bool arrived(std::size_t mark);
  // No copies follow: the operation ends with those so far.
  void close(CallerOrder& caller) const;
  // Nothing is under way. For memory that is to be given back after a failure.
  bool quiet() const;

 private:
  struct Used {
    Device device;
    bool down = false, up = false;
  };
  Used& use(Device device);

  CopyStreams& streams_;
  const CallerOrder& caller_;
  std::vector<Used> used_;
  std::vector<Event> marks_;
  std::size_t reached_ = 0;  // of them
};

}  // namespace peal::comm
