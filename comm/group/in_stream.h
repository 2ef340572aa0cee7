// SPDX-License-Identifier: Apache-2.0
// In the caller's stream: while one of these lives, a collective on a device goes into the calling
// thread's current stream itself, like a kernel, where its transport allows (NCCL, CUDA IPC). For
// who would wait at once, and has little to send:
//
//   const comm::InStream here;
//   group.all_reduce(sums, comm::ReduceOp::sum, label).wait();
//
// Otherwise a collective goes into a stream beside the caller's, so that the caller's work goes on:
// that stream waits for an event of the caller's, and the caller's for one of it, which takes some
// microseconds each on the device. Here nothing does, and the call returns when the operation is in
// the stream, where it comes after the transport's earlier operations and before its later ones. In
// a captured graph there is no difference: events are no part of one. What is staged through the
// host goes as ever. Each rank may do as it likes. Thread safety: the calling thread's.
#pragma once

#include <utility>

namespace peal::comm {

class InStream {
 public:
  InStream() : before_(std::exchange(on(), true)) {}
  ~InStream() { on() = before_; }
  InStream(const InStream&) = delete;
  InStream& operator=(const InStream&) = delete;

  static bool is_on() { return on(); }

 private:
  static bool& on() {
    thread_local bool value = false;
    return value;
  }
  bool before_;
};

}  // namespace peal::comm
