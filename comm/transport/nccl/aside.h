// SPDX-License-Identifier: Apache-2.0
// Aside: one call of a library that may wait for other ranks, in a thread of its own. Who asked for
// it looks whether it is over, or waits as long as that makes sense; a call that is given up goes
// on by itself, and keeps what it uses. Thread safety: one thread at a time.
#pragma once

#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/error.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace peal::comm {

// Throws where waiting is of no more use: a rank has failed.
using Hopeless = std::function<void()>;

class Aside {
 public:
  // `call` is made with the device current. What it throws is who asks over()'s to see.
  Aside(Device device, std::function<void()> call) : state_(std::make_shared<State>()) {
    try {
      std::thread([state = state_, device, call = std::move(call)]() mutable {
        std::exception_ptr error;
        try {
          cuda::use(device);
          call();
        } catch (...) {
          error = std::current_exception();
        }
        call = nullptr;  // before anybody goes on: what it holds may be the last
        const std::lock_guard guard(state->mutex);
        state->error = error;
        state->over = true;
        state->changed.notify_all();
      }).detach();
    } catch (const std::system_error& error) {
      fail(concat("[nccl] no thread for a call that waits for others: ", error.what()));
    }
  }

  // Whether it has ended; throws what it threw.
  bool over() const {
    const std::lock_guard guard(state_->mutex);
    return ended();
  }
  // Until it has; false where it has not by the deadline.
  bool wait(std::chrono::milliseconds deadline, const Hopeless& hopeless) const {
    const auto end = std::chrono::steady_clock::now() + deadline;
    std::unique_lock guard(state_->mutex);
    while (!ended()) {
      if (std::chrono::steady_clock::now() >= end) return false;
      state_->changed.wait_for(guard, std::chrono::milliseconds(1));
      if (state_->over) continue;
      guard.unlock();
      hopeless();
      guard.lock();
    }
    return true;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
    std::exception_ptr error;
  };
  bool ended() const {
    if (state_->over && state_->error) std::rethrow_exception(state_->error);
    return state_->over;
  }
  std::shared_ptr<State> state_;
};

}  // namespace peal::comm
