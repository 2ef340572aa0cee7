// SPDX-License-Identifier: Apache-2.0
// Streams as lazy queues. Work that is given to a stream waits there until somebody must know: then
// it runs on the asking thread, in its stream's order, after what it waits for, and no other work
// has to run before it. So what depends on work in another stream without an event finds it undone,
// and what an event or a synchronise should have protected is overwritten: wrong values, every
// time. Now and then (random.h) work of another stream that may run does.
//
// A kernel that spins is left and entered again, while other work runs. Where processes share
// memory (ipc.cpp) a thread of its own runs all work (start_device_thread()): it is asked for what
// somebody must know, and runs the rest late, but by itself, for another process may spin until it
// is done.
//
// Thread safety: all under one lock, which every function here takes; work runs under it. Work with
// a `ready` that says no (an operation of several ranks, of which some have not come) waits for
// others with the lock free.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cuda_host {

struct Capture;
struct Work;
using WorkRef = std::shared_ptr<Work>;

struct Work {
  std::function<void()> run;      // may be empty
  std::function<bool()> rest{};   // where it was left (suspend()): the rest of it
  std::function<bool()> ready{};  // asked when all before it is done; empty: yes
  unsigned devices = 0;           // whose memory it touches, a bit each
  std::vector<WorkRef> after{};
  std::function<void(const WorkRef&)> begin{};  // called when it is put into a queue; may be empty
  std::function<Work()> anew{};  // in a graph: what a launch gets instead of a copy; may be empty
  std::shared_ptr<CUstream_st> own{};  // a queue of its own, for works of a graph
  CUstream_st* stream = nullptr;
  bool done = false;
  std::chrono::steady_clock::time_point when{};
};

// Held while it lives, by one thread, any number of times.
class Lock {
 public:
  Lock();
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};
inline Lock lock() { return Lock(); }

// The stream behind a handle: null and the two constants are the current device's and thread's own.
// Null for a handle that is none.
CUstream_st* stream_of(cudaStream_t handle);

// Adds work to a queue's end.
WorkRef put(CUstream_st* stream, Work work);
// The same as a call of the runtime does: work may go to the graph that the stream captures. Error
// while the capture is broken.
cudaError_t enqueue(CUstream_st* stream, Work work);
// Runs what must be until it is done.
void finish(const WorkRef& work);
void finish(CUstream_st* stream);
void finish_device(int device);
// Runs at most one work, which brings this one nearer; true when it is done.
bool nudge(const WorkRef& work);

// Said by work that runs: it is not done; `rest` is called until it says true.
void suspend(std::function<bool()> rest);
// Said by work that runs: events that are recorded behind it are that much later than the host's
// clock says.
void take_time(std::chrono::nanoseconds duration);
void start_device_thread();

// Something went wrong while work ran: the error that the runtime gives from then on, and its text.
void set_failure(cudaError_t error, std::string text);
cudaError_t failure();
const std::string& failure_text();
// Forgets the failure and all work that waits. For tests of failures.
void forget_failure();

}  // namespace cuda_host

struct CUstream_st {
  int device = 0;
  bool blocking = true, legacy = false, gone = false;
  std::deque<cuda_host::WorkRef> queue{};
  cuda_host::WorkRef last{};  // the newest work that was given to it
  std::shared_ptr<cuda_host::Capture> capture{};
};

struct CUevent_st {
  unsigned flags = 0;
  int device = 0;
  cuda_host::WorkRef last{};                      // the newest record; null: none yet
  std::shared_ptr<cuda_host::Capture> capture{};  // recorded while its stream captured
  std::vector<std::size_t> nodes{};               // then: what came before it
};
