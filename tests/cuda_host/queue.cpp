// SPDX-License-Identifier: Apache-2.0
#include "queue.h"

#include "capture.h"
#include "memory.h"
#include "random.h"
#include "streams.h"

#include <atomic>
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
  bool running = false;  // work runs: the functions that it calls must not run more
  cudaError_t error = cudaSuccess;
  std::string text;
};

// Never destroyed, as tensors with static storage are given back late.
State& state() {
  static State& instance = *new State;
  return instance;
}

// Lets other threads at the queues until one has changed something, or a while has passed.
void wait_for_others() {
  open_memory(0);
  State& here = state();
  const int depth = std::exchange(here.depth, 0);
  here.owner = std::thread::id();
  {
    std::unique_lock guard(here.mutex, std::adopt_lock);
    here.changed.wait_for(guard, std::chrono::milliseconds(20));
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

void run_head(CUstream_st& stream) {
  const WorkRef work = stream.queue.front();
  stream.queue.pop_front();
  if (work->run && failure() == cudaSuccess) {
    open_memory(work->devices);  // until other work needs another's, or this thread is done
    state().running = true;
    work->run();
    state().running = false;
  }
  work->when = std::chrono::steady_clock::now();
  work->done = true;
  // What they held (tensors, other work) goes now.
  work->run = nullptr;
  work->ready = nullptr;
  work->after.clear();
  state().changed.notify_all();
}

// A head that may run, of any stream, from a random one on; null where there is none.
CUstream_st* any_runnable() {
  auto& all = streams();
  if (all.empty()) return nullptr;
  const std::size_t first = below(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CUstream_st& stream = *all[(first + i) % all.size()];
    if (!stream.queue.empty() && may_run(*stream.queue.front())) return &stream;
  }
  return nullptr;
}

// One step towards the work's end. False: nothing can run before somebody else has done something.
bool step(const WorkRef& target) {
  if (draw() % 8 == 0) {
    if (CUstream_st* other = any_runnable()) {
      run_head(*other);
      return true;
    }
  }
  // Whose head stands in the way, and whose in that one's.
  CUstream_st* stream = target->stream;
  for (WorkRef head; (head = blocker_of(*stream->queue.front())) != nullptr;) stream = head->stream;
  const Work& head = *stream->queue.front();
  if (head.ready && !head.ready()) stream = any_runnable();
  if (stream == nullptr) return false;
  run_head(*stream);
  return true;
}

}  // namespace

Lock::Lock() {
  State& here = state();
  if (here.owner.load() != std::this_thread::get_id()) {
    here.mutex.lock();
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
  work.stream = stream;
  stream->last = std::make_shared<Work>(std::move(work));
  stream->queue.push_back(stream->last);
  state().changed.notify_all();
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
    if (!step(target)) wait_for_others();
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
  if (!state().running && draw() % 2 == 0) {
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
      stream->queue.pop_front();
    }
  }
  forget_captures();
  state().error = cudaSuccess;
  state().text.clear();
  static_cast<void>(cudaGetLastError());
}

}  // namespace cuda_host
