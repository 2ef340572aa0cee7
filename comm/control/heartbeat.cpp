// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/control/heartbeat.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace peal::comm {

Heartbeat::Heartbeat(std::function<void()> beat, std::chrono::milliseconds apart)
    : beat_(std::move(beat)), apart_(apart) {}

Heartbeat::~Heartbeat() {
  thread_.request_stop();
  const std::lock_guard lock(mutex_);
  sleeps_.notify_all();
}

void Heartbeat::begin() {
  const std::lock_guard lock(mutex_);
  ++working_;
  sleeps_.notify_all();
  if (stopped_ || thread_.joinable()) return;
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  } catch (const std::system_error&) {  // there is no thread to be had now: the work goes on
  }
}

void Heartbeat::end() {
  const std::lock_guard lock(mutex_);
  if (--working_ == 0) sleeps_.notify_all();
}

void Heartbeat::stop() {
  std::jthread ended;  // joined without the lock, which it takes
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  thread_.request_stop();
  sleeps_.notify_all();
  ended = std::move(thread_);
}

void Heartbeat::run(const std::stop_token& stop) {
  constexpr std::chrono::milliseconds soon{50};
  const auto none_works = [&] { return working_ == 0; };
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    sleeps_.wait(lock, stop, [&] { return working_ > 0; });
    auto pause = std::min(soon, apart_);
    while (!stop.stop_requested() && !sleeps_.wait_for(lock, stop, pause, none_works)) {
      if (stop.stop_requested()) return;
      beat_();
      pause = apart_;
    }
  }
}

}  // namespace peal::comm
