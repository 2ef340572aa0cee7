// SPDX-License-Identifier: Apache-2.0
// Fiber: a stack with a function on it that can be left and entered again, on one host thread.
// Switching costs some nanoseconds, as no signal mask is saved. Thread safety: none; a fiber is
// entered by the thread that made it.
#pragma once

#include <cstddef>
#include <functional>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cuda_host {

class Fiber {
 public:
  Fiber() = default;  // the place of whoever runs now: what switch_to leaves
  // body must never return: it leaves for good by switching away. `number` staggers the stacks,
  // which would else meet in the same lines of the cache.
  Fiber(std::size_t number, std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Keeps the caller's place in *this, and goes on where `to` was left.
  void switch_to(Fiber& to);

 private:
  static void start();

  void* stack_ = nullptr;
  std::function<void()> body_;
#if defined(__x86_64__)
  void* top_ = nullptr;  // the stack pointer while it is not running
#else
  ucontext_t context_;
#endif
};

}  // namespace cuda_host
