// SPDX-License-Identifier: Apache-2.0
// A communicator's memory for collectives. NCCL takes buffers that it knows on all ranks, or on
// none: the mix is undefined. So the ranks agree after each step that can fail on one of them.
// Each rank reckons by itself where a symmetric window lies in what all share of them, so windows
// are made and forgotten in one order on all ranks: what a rank has released is forgotten when all
// have, at the next allocate().
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/transport/nccl/communicator.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace peal::comm {
namespace {

// With a call that another thread makes, and that may wait for a peer.
constexpr std::chrono::milliseconds patience_of_memory{10'000};

bool all_say_yes(const EveryRank& every, bool mine) {
  const auto all = every(mine ? "yes" : "no");
  return std::ranges::count(all, "no") == 0;
}

}  // namespace

void Communicator::Lent::free(void* data) {
  const std::lock_guard guard(mutex_);
  if (over_) return static_cast<void>(ncclMemFree(data));
  waiting_.push_back(data);
}

bool Communicator::Lent::has(void* data) {
  const std::lock_guard guard(mutex_);
  return std::ranges::count(waiting_, data) > 0;
}

void Communicator::Lent::forgotten(void* data) {
  const std::lock_guard guard(mutex_);
  if (std::erase(waiting_, data) > 0) static_cast<void>(ncclMemFree(data));
}

void Communicator::Lent::end() {
  const std::lock_guard guard(mutex_);
  over_ = true;
  for (void* data : waiting_) static_cast<void>(ncclMemFree(data));
  waiting_.clear();
}

// Ranks make a window together: those that cannot have one get a success without it, or an error.
Communicator::Known Communicator::make_window(void* data, std::size_t bytes,
                                              const Hopeless& hopeless) {
  const auto window = std::make_shared<ncclWindow_t>(nullptr);
  const Aside aside(device_, [=, self = shared_from_this()] {
    const std::lock_guard guard(self->calls_);
    const ncclResult_t result =
        ncclCommWindowRegister(self->usable(), data, bytes, window.get(), NCCL_WIN_COLL_SYMMETRIC);
    if (result != ncclSuccess) *window = nullptr;
  });
  wait_for(aside, "ncclCommWindowRegister", hopeless);
  return {nullptr, *window};
}

Communicator::Known Communicator::make_registered(void* data, std::size_t bytes) {
  Known known;
  const std::lock_guard guard(calls_);
  if (ncclCommRegister(usable(), data, bytes, &known.handle) != ncclSuccess) return {};
  return known;
}

// The best that all ranks have; nothing of what only some have stays.
Communicator::Known Communicator::make_known(void* data, std::size_t bytes, const EveryRank& every,
                                             const Hopeless& hopeless) {
  if (options_.symmetric_memory) {
    const Known window = make_window(data, bytes, hopeless);
    if (all_say_yes(every, static_cast<bool>(window))) return window;
    if (window) forget(nullptr, window);
  }
  const Known registered = make_registered(data, bytes);
  if (all_say_yes(every, static_cast<bool>(registered))) return registered;
  if (registered) forget(nullptr, registered);
  return {};
}

StorageRef Communicator::allocate(std::size_t bytes, const EveryRank& every,
                                  const Hopeless& hopeless) {
  if (bytes == 0) return nullptr;
  cuda::use(device_);
  forget_released(every, hopeless);
  void* data = nullptr;
  const bool mine = ncclMemAlloc(&data, bytes) == ncclSuccess;
  if (!mine) {
    static_cast<void>(cudaGetLastError());  // it is no error of later calls
    data = nullptr;
  }
  Known known;
  try {
    if (all_say_yes(every, mine)) known = make_known(data, bytes, every, hopeless);
  } catch (...) {  // a call that was given up may still be at it: then it stays
    const std::unique_lock calls(calls_, std::min(deadline_, patience_of_memory));
    if (data != nullptr && calls) lent_->free(data);
    throw;
  }
  if (!known) {
    if (data != nullptr) static_cast<void>(ncclMemFree(data));
    log_warning("[nccl] not every rank has ", bytes, " bytes that NCCL can register (", device_,
                mine ? " has" : " has not", "): they are ordinary memory on all, which it copies");
    return nullptr;
  }
  {
    const std::lock_guard guard(mutex_);
    ranges_[static_cast<const std::byte*>(data)] = {bytes, next_range_++};
  }
  if (known.window != nullptr) windows_.push_back({data, known.window});
  const auto release = [data, known, device = device_, lent = lent_, weak = weak_from_this()] {
    try {
      cuda::wait_for_streams(device);  // it goes back to the driver at once
      const auto alive = weak.lock();
      const bool local = known.window == nullptr;
      if (local && alive && alive->forget(data, known)) return static_cast<void>(ncclMemFree(data));
      lent->free(data);
    } catch (const Error&) {  // the driver is gone, and the memory with it
    }
  };
  StorageRef storage = Storage::wrap(data, bytes, device_, release);
  PEAL_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, cuda::stream_on(device_)));
  return storage;
}

void Communicator::forget_released(const EveryRank& every, const Hopeless& hopeless) {
  if (windows_.empty()) return;  // on all ranks
  std::string mine;
  for (const Window& each : windows_) mine += lent_->has(each.data) ? 'y' : 'n';
  const auto all = every(mine);
  for (const std::string& said : all) {
    PEAL_CHECK(said.size() == mine.size(), "[nccl] memory on ", device_, ": a rank says '", said,
               "' of its windows, expected y or n for each of ", mine.size(),
               ": make the same calls of allocate() in the same order on all ranks");
  }
  std::vector<Window> over, left;
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    const auto released = [&](const std::string& said) { return said[i] == 'y'; };
    (std::ranges::all_of(all, released) ? over : left).push_back(windows_[i]);
  }
  if (over.empty()) return;
  windows_ = std::move(left);
  const Aside aside(device_, [over, self = shared_from_this()] {
    const std::lock_guard guard(self->calls_);
    for (const Window& each : over) {
      // What NCCL does not let go of stays until the communicator's end.
      if (ncclCommWindowDeregister(self->usable(), each.window) != ncclSuccess) continue;
      {
        const std::lock_guard moment(self->mutex_);
        self->ranges_.erase(static_cast<const std::byte*>(each.data));
      }
      self->lent_->forgotten(each.data);
    }
  });
  wait_for(aside, "ncclCommWindowDeregister", hopeless);
}

// False where it must be kept until the communicator's end.
bool Communicator::forget(const void* data, const Known& known) {
  const std::unique_lock calls(calls_, std::min(deadline_, patience_of_memory));
  if (!calls) return false;
  ncclComm_t handle = nullptr;
  {
    const std::lock_guard guard(mutex_);
    if (data != nullptr) ranges_.erase(static_cast<const std::byte*>(data));
    handle = handle_;
  }
  if (handle == nullptr) return false;
  if (known.window != nullptr) return ncclCommWindowDeregister(handle, known.window) == ncclSuccess;
  return ncclCommDeregister(handle, known.handle) == ncclSuccess;
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> Communicator::place(const void* data) const {
  const auto* const at = static_cast<const std::byte*>(data);
  const std::lock_guard guard(mutex_);
  auto next = ranges_.upper_bound(at);
  if (next == ranges_.begin()) return {};
  --next;
  const auto byte = static_cast<std::uint64_t>(at - next->first);
  if (byte >= next->second.bytes) return {};
  return std::pair(next->second.number, byte);
}

}  // namespace peal::comm
