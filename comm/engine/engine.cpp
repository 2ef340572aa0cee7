// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/engine/engine.h>
#include <peal/comm/record/recorder.h>

#include <sched.h>

#include <algorithm>
#include <thread>

namespace peal::comm {
namespace {

using std::chrono::steady_clock;

constexpr int spins_before_yield = 2000;
constexpr int spins_between_looks = 64;
constexpr std::chrono::milliseconds between_guards{50};
constexpr std::chrono::milliseconds longest_look{1000};  // of the guard that nothing holds up

// Lets another thread have the core. Among ranks a yield is cheapest; but where it comes back late,
// the core is wanted by programs that never wait, and one who sleeps briefly is put before them
// when it wakes.
void give_way() {
  thread_local bool contended = false;
  const auto before = steady_clock::now();
  if (contended) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  } else {
    sched_yield();
  }
  contended = steady_clock::now() - before > std::chrono::microseconds(500);
}

void run(std::vector<Lane::Ready>& ready) {
  for (Lane::Ready& next : ready) {
    if (!next.f || next.operation->error) continue;
    try {
      next.operation->execution.order();
      next.f();
    } catch (...) {
      next.operation->error = std::current_exception();
    }
  }
}

void refuse_captured(const Operation& operation) {
  PEAL_CHECK(!operation.captured, "[comm] ", describe(operation),
             " lies in a graph: each replay runs it, and the host can only wait for the stream of "
             "the replay; Work::wait() orders what is captured after it");
}

}  // namespace

void Engine::submit(const std::shared_ptr<Lane>& lane, const OperationRef& operation) {
  std::vector<Lane::Ready> ready;
  {
    std::lock_guard lock(mutex_);
    lane->transport().check_thread();
    ready.swap(ended_);
    if (std::find(lanes_.begin(), lanes_.end(), lane) == lanes_.end()) lanes_.push_back(lane);
    const auto& recorder = lane->recorder();
    Execution& execution = operation->execution;
    if (recorder && recorder->recording() && execution.call().replayed == 0) {
      const std::shared_ptr<const Plan>& plan = execution.plan();
      execution.record(
          recorder,
          recorder->begin(lane->id(), operation->channel, describe(*operation),
                          plan ? plan->name : "native",
                          plan ? std::shared_ptr<const Program>(plan, &plan->program) : nullptr,
                          execution.element()));
    }
    lane->submit(operation, ready);
  }
  run(ready);
}

void Engine::hand_over(const std::shared_ptr<Lane>& lane) {
  while (true) {
    progress();
    OperationRef entering;
    std::shared_ptr<Lane> of = lane;
    {
      std::lock_guard lock(mutex_);
      lane->check();
      for (std::size_t i = 0; i < lanes_.size() && !entering; ++i) {
        of = lanes_[i];
        entering = of->entering();
      }
    }
    if (!entering) return;
    give_way();
    look(of, entering);
  }
}

void Engine::capture(const std::shared_ptr<Lane>& lane, const OperationRef& operation) {
  hand_over(lane);
  try {
    {
      std::lock_guard lock(mutex_);
      operation->execution.take_place();
    }
    for (bool whole = false; !whole;) {
      {
        std::lock_guard lock(mutex_);
        lane->check();
        whole = operation->execution.hand_over();
      }
      if (!whole) give_way();
    }
  } catch (const Error& error) {
    operation->execution.leave_capture();
    fail(concat("[comm] ", lane->who(), ", ", describe(*operation), " in a graph: ", error.what()));
  }
  operation->captured = operation->complete = true;
  operation->retired = true;
}

void Engine::progress() {
  std::vector<Lane::Ready> ready;
  {
    std::lock_guard lock(mutex_);
    // Before anything is touched: a thread that may not is the caller's mistake.
    for (const auto& lane : lanes_) {
      if (lane->pending()) lane->transport().check_thread();
    }
    ready.swap(ended_);
    for (const auto& lane : lanes_) {
      if (lane->pending()) lane->advance(ready);
    }
  }
  run(ready);
}

void Engine::look(const std::shared_ptr<Lane>& lane, const OperationRef& operation) {
  std::vector<Lane::Ready> ready;
  {
    std::lock_guard lock(mutex_);
    if (!operation->retired) lane->watch(operation, ready);
  }
  run(ready);
}

void Engine::wait_until(const std::shared_ptr<Lane>& lane, const OperationRef& operation,
                        bool handed_over) {
  if (!handed_over) refuse_captured(*operation);
  const auto nap = lane->transport().nap();
  const auto over = [&] { return operation->retired || (handed_over && operation->ordered); };
  for (int spins = 0; !over(); ++spins) {
    progress();
    if (over()) break;
    if (nap.count() > 0) {
      std::this_thread::sleep_for(nap);
      look(lane, operation);
      continue;
    }
    if (crowded_ || spins > spins_before_yield) give_way();
    if (crowded_ || spins % spins_between_looks == 0) look(lane, operation);
  }
  if (operation->retired && operation->error) std::rethrow_exception(operation->error);
}

Engine::~Engine() {
  guard_.request_stop();
  relief_.request_stop();
  guard_sleeps_.notify_all();
}

void Engine::attach(const std::shared_ptr<Lane>& lane, std::unique_ptr<Transport> transport) {
  std::unique_ptr<Transport> before;   // it waits for its peers when it goes
  const std::lock_guard lock(mutex_);  // the thread below looks at the lanes
  const std::lock_guard guarded(guarded_mutex_);
  std::erase(guarded_, lane.get());
  before = lane->set_device_transport(std::move(transport), entrance_);
  if (!lane->device_transport()->stream_ordered()) return;
  guarded_.push_back(lane.get());
  if (guard_.joinable()) return;
  guard_ = std::jthread([this](const std::stop_token& stop) { guard(stop); });
  relief_ = std::jthread([this](const std::stop_token& stop) { relieve(stop); });
}

void Engine::guard(const std::stop_token& stop) {
  std::mutex own;  // to wake it shall not take the engine's
  while (!stop.stop_requested()) {
    guard_began_ = steady_clock::now();
    {
      const std::lock_guard lock(mutex_);
      for (const auto& lane : lanes_) {
        if (lane->device_transport() != nullptr && lane->pending()) lane->watch_device(ended_);
      }
    }
    guard_began_ = steady_clock::time_point{};
    std::unique_lock lock(own);
    guard_sleeps_.wait_for(lock, stop, between_guards, [] { return false; });
  }
}

void Engine::relieve(const std::stop_token& stop) {
  std::unique_lock lock(guarded_mutex_);
  while (!stop.stop_requested()) {
    guard_sleeps_.wait_for(lock, stop, between_guards, [] { return false; });
    const auto began = guard_began_.load();
    const auto stood = steady_clock::now() - began;
    if (began == steady_clock::time_point{} || stood < longest_look) continue;
    for (Lane* lane : guarded_) lane->relieve(stood);
  }
}

bool Engine::test(const std::shared_ptr<Lane>& lane, const OperationRef& operation) {
  refuse_captured(*operation);
  if (operation->retired) return true;
  progress();
  const auto now = steady_clock::now();
  if (!operation->retired && now >= next_look_) {
    next_look_ = now + std::chrono::milliseconds(1);
    look(lane, operation);
  }
  return operation->retired;
}

void Engine::then(const std::shared_ptr<Lane>& lane, const OperationRef& operation,
                  std::function<void()> f) {
  refuse_captured(*operation);
  std::vector<Lane::Ready> ready;
  {
    std::lock_guard lock(mutex_);
    if (!operation->retired) {
      operation->continuations.push_back(std::move(f));
      return;
    }
    ready.push_back({lane, operation, std::move(f)});
  }
  run(ready);
}

void Engine::remove(const std::shared_ptr<Lane>& lane, bool failed) {
  for (OperationRef last; !failed;) {
    {
      std::lock_guard lock(mutex_);
      last = lane->handed_over();
    }
    if (!last) break;
    try {
      synchronize(lane, last);
    } catch (const std::exception&) {  // whoever waits for it is told
      failed = true;
    }
  }
  std::vector<Lane::Ready> ready;
  {
    std::lock_guard lock(mutex_);
    ready.swap(ended_);
    if (failed) lane->abandon();
    lane->fail_all("[comm] the process group is gone", ready);
    std::erase(lanes_, lane);
    const std::lock_guard guarded(guarded_mutex_);
    std::erase(guarded_, lane.get());
  }
}

}  // namespace peal::comm
