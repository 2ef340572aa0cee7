// SPDX-License-Identifier: Apache-2.0
// Communicator: a non-blocking communicator of NCCL, and what peal asks of one. Calls return at
// once; while the last one is under way the communicator is *busy*, and nothing else may be asked
// of it. So a peer that never comes is found by whoever polls, and the communicator aborted, where
// a blocking one would hang in the library. Thread safety: any thread; NCCL's own calls want the
// lock() meanwhile.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/autograd/core/storage.h>
#include <peal/autograd/core/stream.h>

#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace peal::comm {

// Throws where waiting is of no more use: a rank has failed.
using Hopeless = std::function<void()>;

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // Collective over the ranks that got `id` from one of them. Waits for them, until the deadline.
  static std::shared_ptr<Communicator> create(const ncclUniqueId& id, int rank, int world,
                                              Device device, std::chrono::milliseconds deadline,
                                              const Hopeless& hopeless);
  Communicator(ncclComm_t handle, Device device, std::chrono::milliseconds deadline);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Collective over this one: those of one colour get a communicator, by key; null for
  // NCCL_SPLIT_NOCOLOR. REQUIRES: nothing of it is in a queue.
  std::shared_ptr<Communicator> split(int colour, int key, const Hopeless& hopeless);

  ncclComm_t handle() const { return handle_; }
  // For calls with the handle: NCCL takes one thread at a time, even for asking.
  std::unique_lock<std::recursive_mutex> lock() const { return std::unique_lock(mutex_); }
  // Error that names the call and NCCL's reason, unless `result` is success or "in progress".
  void expect(ncclResult_t result, std::string_view call) const;
  // How long ranks wait for each other.
  std::chrono::milliseconds deadline() const { return deadline_; }
  // Error where anything has failed; nothing where another thread is in a call.
  void check() const;
  // True while the last call is under way. Error where it, or anything else, has failed.
  bool busy() const;
  // What it does next goes into a graph that is captured.
  void note_captured() { captured_ = true; }
  // Ends everything in queues that waits for a peer.
  void abort();
  // Memory that NCCL knows, so that it moves it without copies; null where it has none to give.
  StorageRef allocate(std::size_t bytes);

 private:
  class Making;
  class Lent;
  bool forget(void* known) const;
  static std::shared_ptr<Communicator> finished(Making& making, std::string_view call,
                                                Device device, std::chrono::milliseconds deadline,
                                                const Hopeless& hopeless);
  void settle(std::string_view call, std::chrono::milliseconds deadline,
              const Hopeless& hopeless) const;

  ncclComm_t handle_ = nullptr;  // null once aborted
  bool captured_ = false;
  Device device_;
  std::chrono::milliseconds deadline_;
  mutable std::recursive_mutex mutex_;
  std::shared_ptr<Lent> lent_;
};

}  // namespace peal::comm
