// SPDX-License-Identifier: Apache-2.0
// Progress thread (MPICH: asynchronous progress): looks now and then after what is in flight
// between nodes, so that it goes on while the program computes, in one long kernel or many
// (docs/decisions/0025-a-thread-for-the-network.md). It sleeps while nothing is. Thread safety:
// wake() from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

namespace peal::comm {

class ProgressThread {
 public:
  // Between two looks. Libraries and the kernel's buffers keep a network busy for longer; and at
  // this rate looking costs a core that computes less than a hundredth.
  static constexpr std::chrono::microseconds period{500};

  // `advance` does what can be done, never throws, and says whether anything is left in flight.
  explicit ProgressThread(std::function<bool()> advance);
  // REQUIRES: another thread than this.
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // Something is in flight. Cheap where it is awake.
  void wake();

 private:
  void run(const std::stop_token& stop);

  std::function<bool()> advance_;
  std::mutex mutex_;
  std::condition_variable_any sleeps_;
  std::atomic<bool> awake_{true};
  std::jthread thread_;  // the last member: it ends before the others do
};

}  // namespace peal::comm
