// SPDX-License-Identifier: Apache-2.0
// Heartbeat: a thread that calls a function now and then while somebody works, and sleeps while
// nobody does. A rank that works for long says by it to those that do not share its memory that it
// is alive, and where: while its process stands still, or is gone, so does this. Thread safety:
// begin() and end() from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

namespace peal::comm {

class Heartbeat {
 public:
  // `beat` never throws, and waits for nobody.
  Heartbeat(std::function<void()> beat, std::chrono::milliseconds apart);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Work begins: the first beat comes soon, but not of work that is over before.
  void begin();
  // It is done, as often as it began. After the last there is no beat under way.
  void end();
  // For good, whoever works: from here on there is no beat. Waits for one that is under way.
  void stop();
  std::chrono::milliseconds apart() const { return apart_; }

 private:
  void run(const std::stop_token& stop);

  const std::function<void()> beat_;
  const std::chrono::milliseconds apart_;
  std::mutex mutex_;
  std::condition_variable_any sleeps_;
  int working_ = 0;
  bool stopped_ = false;
  std::jthread thread_;  // the last member: it ends before the others do
};

}  // namespace peal::comm
