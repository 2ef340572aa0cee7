// SPDX-License-Identifier: Apache-2.0
#include "queue.h"

#include "capture.h"
#include "memory.h"
#include "random.h"
#include "streams.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace cuda_host {
namespace {

constexpr std::size_t longest_queue = 1024;

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<std::thread::id> owner{};
  int depth = 0;
  bool running = false;          // work runs: the functions that it calls must not run more
  std::function<bool()> rest;    // of the work that runs, where it was left
  std::atomic<int> waiting = 0;  // threads that want the lock
  std::thread::id device;        // the device thread, where there is one
  std::vector<WorkRef> wanted;   // by threads that wait for it to run them
  std::chrono::steady_clock::time_point last_run{};
  std::chrono::nanoseconds taken{};  // by work that said so
  cudaError_t error = cudaSuccess;
  std::string text;
};

// Never destroyed, as tensors with static storage are given back late.
State& state() {
  static State& instance = *new State;
  return instance;
}

// Lets other threads at the queues until one has changed something, or a while has passed.
void wait_for_others(std::chrono::milliseconds most = std::chrono::milliseconds(20)) {
  open_memory(0);
  State& here = state();
  const int depth = std::exchange(here.depth, 0);
  here.owner = std::thread::id();
  {
    std::unique_lock guard(here.mutex, std::adopt_lock);
    here.changed.wait_for(guard, most);
    guard.release();
  }
  here.owner = std::this_thread::get_id();
  here.depth = depth;
}

WorkRef blocker_of(const Work& work) {
  for (const WorkRef& before : work.after) {
    if (!before->done) return before;
  }
  return nullptr;
}

bool may_run(const Work& work) {
  return blocker_of(work) == nullptr && (!work.ready || work.ready());
}

// False where the head was left before its end.
bool run_head(CUstream_st& stream) {
  State& here = state();
  const WorkRef work = stream.queue.front();
  if ((work->run || work->rest) && failure() == cudaSuccess) {
    open_memory(work->devices);  // until other work needs another's, or this thread is done
    here.running = true;
    if (work->rest) {
      if (work->rest()) work->rest = nullptr;
    } else {
      work->run();
      work->rest = std::exchange(here.rest, nullptr);
    }
    here.running = false;
    here.last_run = std::chrono::steady_clock::now();
    if (work->rest && failure() == cudaSuccess) return false;
  }
  stream.queue.pop_front();
  work->when = std::chrono::steady_clock::now() + here.taken;
  work->done = true;
  // What they held (tensors, other work) goes now.
  work->run = nullptr;
  work->rest = nullptr;
  work->ready = nullptr;
  work->after.clear();
  const auto own = std::move(work->own);
  here.changed.notify_all();
  return true;
}

// The queue whose head stands in the way of this one's, and of that one's; itself where none does.
CUstream_st* deepest(CUstream_st* stream) {
  for (WorkRef head; (head = blocker_of(*stream->queue.front())) != nullptr;) stream = head->stream;
  return stream;
}

// A queue whose head may run and was not left, on the way of any stream, from a random one on; null
// where there is none.
CUstream_st* any_runnable() {
  auto& all = streams();
  if (all.empty()) return nullptr;
  const std::size_t first = below(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CUstream_st* stream = all[(first + i) % all.size()].get();
    if (stream->queue.empty()) continue;
    stream = deepest(stream);
    if (stream->queue.front()->rest) continue;
    if (may_run(*stream->queue.front())) return stream;
  }
  return nullptr;
}

bool on_device_thread() { return state().device == std::this_thread::get_id(); }

// One step towards the work's end. False: nothing can run before somebody else has done something.
bool step(const WorkRef& target) {
  if (draw() % 8 == 0) {
    if (CUstream_st* other = any_runnable()) {
      run_head(*other);
      return true;
    }
  }
  CUstream_st* stream = deepest(target->stream);
  const Work& head = *stream->queue.front();
  if ((head.ready && !head.ready()) || (head.rest && on_device_thread())) stream = any_runnable();
  if (stream == nullptr) return false;
  return run_head(*stream);
}

bool has_device_thread() { return state().device != std::thread::id(); }

void want(const WorkRef& work) {
  auto& wanted = state().wanted;
  if (std::find(wanted.begin(), wanted.end(), work) == wanted.end()) wanted.push_back(work);
  state().changed.notify_all();
}

// What was left goes on, then something wanted, then what has waited for long. False: nothing has
// come to its end.
bool device_pass(bool& spins) {
  constexpr std::chrono::milliseconds lateness{1};
  State& here = state();
  bool moved = false;
  spins = false;
  const auto count = streams().size();
  for (std::size_t i = 0; i < count; ++i) {
    if (streams()[i]->queue.empty()) continue;
    CUstream_st* const stream = deepest(streams()[i].get());
    const WorkRef head = stream->queue.front();
    if (!head->rest) continue;
    const auto before = here.last_run;
    moved = run_head(*stream) || moved;
    here.last_run = before;
    spins = spins || !head->done;
  }
  std::erase_if(here.wanted, [](const WorkRef& work) { return work->done; });
  if (!here.wanted.empty() && step(here.wanted[below(here.wanted.size())])) return true;
  if (moved || std::chrono::steady_clock::now() - here.last_run < lateness) return moved;
  CUstream_st* late = any_runnable();
  return late != nullptr && run_head(*late);
}

void serve() {
  State& here = state();
  for (int idle = 0;;) {
    bool spins = false, moved = false;
    {
      const auto guard = lock();
      moved = device_pass(spins);
      // Closing takes longer than a look, so memory stays open while a kernel spins.
      if (!spins || idle > 1000) open_memory(0);
      if (!moved && !spins) wait_for_others(std::chrono::milliseconds(1));
    }
    idle = moved ? 0 : idle + 1;
    while (here.waiting.load() > 0) std::this_thread::yield();
    // Whoever sleeps is put before programs that never do, when it wakes.
    if (spins && idle > 2) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace

void start_device_thread() {
  const auto guard = lock();
  if (has_device_thread()) return;
  std::thread thread(serve);
  state().device = thread.get_id();
  thread.detach();
}

void suspend(std::function<bool()> rest) { state().rest = std::move(rest); }
void take_time(std::chrono::nanoseconds duration) { state().taken += duration; }

Lock::Lock() {
  State& here = state();
  if (here.owner.load() != std::this_thread::get_id()) {
    ++here.waiting;
    here.mutex.lock();
    --here.waiting;
    here.owner = std::this_thread::get_id();
  }
  ++here.depth;
}

Lock::~Lock() {
  State& here = state();
  if (--here.depth > 0) return;
  here.owner = std::thread::id();
  here.mutex.unlock();
}

WorkRef put(CUstream_st* stream, Work work) {
  work.stream = stream;
  const auto begin = std::exchange(work.begin, nullptr);
  const WorkRef made = stream->last = std::make_shared<Work>(std::move(work));
  stream->queue.push_back(made);
  if (begin) begin(made);
  state().changed.notify_all();
  return made;
}

cudaError_t enqueue(CUstream_st* stream, Work work) {
  const auto guard = lock();
  if (stream->capture != nullptr) return capture(stream, std::move(work));
  if (stream->legacy && legacy_meets_capture(stream->device)) return cudaErrorStreamCaptureImplicit;
  // The legacy stream and the others that are not cudaStreamNonBlocking wait for each other.
  if (stream->blocking) {
    for (const auto& other : streams()) {
      if (other->device != stream->device || !other->blocking || other->legacy == stream->legacy) {
        continue;
      }
      if (other->last != nullptr && !other->last->done) work.after.push_back(other->last);
    }
  }
  put(stream, std::move(work));
  if (stream->queue.size() > longest_queue) finish(stream->queue.front());
  return cudaSuccess;
}

void finish(const WorkRef& work) {
  if (work == nullptr) return;
  const auto guard = lock();
  if (state().running) {
    set_failure(cudaErrorNotSupported, "a host function or a kernel called the runtime");
    return;
  }
  const WorkRef target = work;
  while (!target->done) {
    if (has_device_thread() && !on_device_thread()) {
      want(target);
      wait_for_others();
    } else if (!step(target)) {
      wait_for_others();
    }
  }
  open_memory(0);
}

void finish(CUstream_st* stream) { finish(stream->last); }

void finish_device(int device) {
  const auto guard = lock();
  // A copy: the list may grow while work waits for other threads.
  std::vector<WorkRef> all;
  for (const auto& stream : streams()) {
    if (stream->device == device && stream->last != nullptr) all.push_back(stream->last);
  }
  shuffle_order(all);
  for (const WorkRef& work : all) finish(work);
}

bool nudge(const WorkRef& work) {
  const auto guard = lock();
  if (work == nullptr || work->done) return true;
  if (has_device_thread()) {
    want(work);
  } else if (!state().running && draw() % 2 == 0) {
    step(work);
    open_memory(0);
  }
  return work->done;
}

void set_failure(cudaError_t error, std::string text) {
  const auto guard = lock();
  if (state().error != cudaSuccess) return;
  state().error = error;
  state().text = "CUDA on the host: " + std::move(text);
}

cudaError_t failure() { return state().error; }

const std::string& failure_text() { return state().text; }

void forget_failure() {
  const auto guard = lock();
  for (const auto& stream : streams()) {
    while (!stream->queue.empty()) {
      stream->queue.front()->done = true;
      stream->queue.front()->rest = nullptr;
      stream->queue.pop_front();
    }
  }
  forget_captures();
  state().error = cudaSuccess;
  state().text.clear();
  static_cast<void>(cudaGetLastError());
}

}  // namespace cuda_host
