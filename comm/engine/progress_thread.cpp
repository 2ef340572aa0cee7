// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/comm/engine/progress_thread.h>

#include <utility>

namespace peal::comm {

ProgressThread::ProgressThread(std::function<bool()> advance)
    : advance_(std::move(advance)),
      thread_([this, tag = context().log_tag](const std::stop_token& stop) {
        context().log_tag = tag;
        run(stop);
      }) {}

ProgressThread::~ProgressThread() {
  thread_.request_stop();
  const std::lock_guard lock(mutex_);
  sleeps_.notify_all();
}

void ProgressThread::wake() {
  if (awake_) return;
  const std::lock_guard lock(mutex_);
  awake_ = true;
  sleeps_.notify_all();
}

// To fall asleep for long costs whoever wakes it a call of the system: so it does that only where
// there was nothing for a while.
void ProgressThread::run(const std::stop_token& stop) {
  constexpr int quiet_looks = 40;
  int quiet = 0;
  while (!stop.stop_requested()) {
    std::this_thread::sleep_for(period);
    quiet = advance_() ? 0 : quiet + 1;
    if (quiet < quiet_looks) continue;
    awake_ = false;
    quiet = 0;
    if (advance_()) {  // it came before anybody could see that
      awake_ = true;
      continue;
    }
    std::unique_lock lock(mutex_);
    sleeps_.wait(lock, stop, [&] { return awake_.load(); });
  }
}

}  // namespace peal::comm
