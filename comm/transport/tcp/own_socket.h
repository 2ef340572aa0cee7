// SPDX-License-Identifier: Apache-2.0
// A descriptor that no child has: closed in whoever this process forks (pthread_atfork) and in what
// it executes. A child that kept a connection would hide from the other end that its parent is
// gone. Thread safety: several may be made and dropped at once; one is one thread's.
#pragma once

#include <peal/autograd/core/fork.h>

namespace peal::comm {

class OwnSocket {
 public:
  // Takes over a descriptor that was made close-on-exec.
  explicit OwnSocket(int descriptor);
  ~OwnSocket();
  OwnSocket(const OwnSocket&) = delete;
  OwnSocket& operator=(const OwnSocket&) = delete;
  int get() const { return descriptor_; }
  bool inherited() const { return mark_.inherited(); }

 private:
  int descriptor_;
  ForkMark mark_;
};

}  // namespace peal::comm
