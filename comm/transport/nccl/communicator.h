// SPDX-License-Identifier: Apache-2.0
// Communicator: a blocking communicator of NCCL (ncclConfig_t::blocking = 1, as PyTorch's default),
// and what peal asks of one. A call that puts something into a queue returns when it is there. The
// first of its kind may wait within NCCL for ranks that have not come to theirs, as it connects
// them; so may the making of a communicator. Those waits are made aside (aside.h), with a deadline,
// and whoever sees a failure ends them by abort(), from any thread. (A non-blocking communicator
// would make a thread for every collective, and take no second call before the first is in.)
// Thread safety: any thread; calls are made one at a time.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/autograd/core/storage.h>
#include <peal/autograd/core/stream.h>
#include <peal/comm/transport/nccl/aside.h>
#include <peal/comm/transport/nccl/options.h>
#include <peal/comm/transport/transport.h>

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::comm {

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  using Call = std::function<ncclResult_t(ncclComm_t)>;

  // Collective over the ranks that got `id` from one of them. Waits for them, until the deadline.
  static std::shared_ptr<Communicator> create(const ncclUniqueId& id, int rank, int world,
                                              Device device, const NcclOptions& options,
                                              std::chrono::milliseconds deadline,
                                              const Hopeless& hopeless);
  Communicator(ncclComm_t handle, Device device, const NcclOptions& options,
               std::chrono::milliseconds deadline);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Collective over this one: those of one colour get a communicator, by key; null for
  // NCCL_SPLIT_NOCOLOR. REQUIRES: nothing of it is in a queue.
  std::shared_ptr<Communicator> split(int colour, int key, const Hopeless& hopeless);

  // Makes the call, which `what` names, in this thread. Error with NCCL's reason, or where the
  // communicator was aborted.
  void call(std::string_view what, const Call& call);
  // How long ranks wait for each other.
  std::chrono::milliseconds deadline() const { return deadline_; }
  // Error where anything has failed; waits for nobody.
  void check() const;
  // What it does next goes into a graph that is captured.
  void note_captured() { captured_ = true; }
  // Ends everything that waits for a peer, in queues and in calls.
  void abort();

  // Memory that NCCL knows, so that it moves it without copies; null, on all ranks, where one of
  // them has none to give.
  StorageRef allocate(std::size_t bytes, const EveryRank& every, const Hopeless& hopeless);
  // Where data lies in such memory: the number of that memory, and the byte in it.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> place(const void* data) const;

 private:
  // Memory that NCCL knows and nobody uses any more. It may be freed once the communicator has
  // forgotten all, which after a failure may be late, and in another thread.
  class Lent {
   public:
    void free(void* data);
    bool has(void* data);        // waits to be freed
    void forgotten(void* data);  // the communicator knows no more of this
    void end();                  // the communicator is no more

   private:
    std::mutex mutex_;
    bool over_ = false;
    std::vector<void*> waiting_;
  };
  struct Known {
    void* handle = nullptr;  // of ncclCommRegister
    ncclWindow_t window = nullptr;
    explicit operator bool() const { return handle != nullptr || window != nullptr; }
  };
  struct Window {
    void* data;
    ncclWindow_t window;
  };
  struct Range {
    std::size_t bytes;
    std::uint64_t number;
  };
  using Make = std::function<ncclResult_t(ncclComm_t*, ncclConfig_t*)>;
  static std::shared_ptr<Communicator> made(const std::string& what, Device device,
                                            const NcclOptions& options,
                                            std::chrono::milliseconds deadline,
                                            const Hopeless& hopeless, const Make& make);
  ncclComm_t usable() const;
  Known make_window(void* data, std::size_t bytes, const Hopeless& hopeless);
  Known make_registered(void* data, std::size_t bytes);
  Known make_known(void* data, std::size_t bytes, const EveryRank& every, const Hopeless& hopeless);
  bool forget(const void* data, const Known& known);
  void forget_released(const EveryRank& every, const Hopeless& hopeless);
  void wait_for(const Aside& aside, std::string_view what, const Hopeless& hopeless);

  std::atomic<bool> captured_{false};
  const Device device_;
  const NcclOptions options_;
  const std::chrono::milliseconds deadline_;
  std::timed_mutex calls_;       // held while NCCL is called, which may be for long
  mutable std::mutex mutex_;     // of what follows; held for moments
  ncclComm_t handle_ = nullptr;  // null once aborted
  std::map<const std::byte*, Range> ranges_;
  std::uint64_t next_range_ = 1;
  std::vector<Window> windows_;  // in the order of their making; alike on all ranks
  std::shared_ptr<Lent> lent_;
};

}  // namespace peal::comm
