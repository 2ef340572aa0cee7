// SPDX-License-Identifier: Apache-2.0
// Queue tail: the stream in which the last thing lies that a transport has put into one. A
// transport has a stream of its own, and some operations go into their caller's (in_stream.h); all
// come one after the other all the same, as peers match them by order alone, and kernels that wait
// for peers must not wait for each other. Where one stream follows another, an event says so; where
// the next thing goes to the stream of the last, nothing has to. Thread safety: as of the
// transport.
#pragma once

#include <peal/autograd/core/stream.h>

#include <utility>

namespace peal::comm {

class QueueTail {
 public:
  explicit QueueTail(Stream first) : last_(std::move(first)) {}

  // What `next` gets from now on comes after all that was put anywhere.
  void lead(const Stream& next) const {
    if (next == last_) return;
    Event tail;
    tail.record(last_);
    next.wait(tail);
  }
  // The same, and the next thing is put there.
  void enter(const Stream& next) {
    lead(next);
    last_ = next;
  }
  const Stream& last() const { return last_; }

 private:
  Stream last_;
};

}  // namespace peal::comm
