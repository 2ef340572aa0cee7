// SPDX-License-Identifier: Apache-2.0
// A communicator's memory for collectives. NCCL takes buffers that it knows on all ranks, or on
// none: the mix is undefined. So the ranks agree after each step that can fail on one of them.
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

}  // namespace

void Communicator::Lent::free(void* data) {
  const std::lock_guard guard(mutex_);
  if (over_) return static_cast<void>(ncclMemFree(data));
  waiting_.push_back(data);
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
  PEAL_CHECK(aside.wait(deadline_, hopeless), "[nccl] ncclCommWindowRegister on ", device_,
             " has not ended for ", std::chrono::duration<double>(deadline_).count(),
             " s (PEAL_TIMEOUT): not every rank takes part");
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
    if (every(static_cast<bool>(window))) return window;
    if (window) forget(nullptr, window);
  }
  const Known registered = make_registered(data, bytes);
  if (every(static_cast<bool>(registered))) return registered;
  if (registered) forget(nullptr, registered);
  return {};
}

StorageRef Communicator::allocate(std::size_t bytes, const EveryRank& every,
                                  const Hopeless& hopeless) {
  if (bytes == 0) return nullptr;
  cuda::use(device_);
  void* data = nullptr;
  const bool mine = ncclMemAlloc(&data, bytes) == ncclSuccess;
  if (!mine) {
    static_cast<void>(cudaGetLastError());  // it is no error of later calls
    data = nullptr;
  }
  Known known;
  if (every(mine)) known = make_known(data, bytes, every, hopeless);
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
  const auto release = [data, known, device = device_, lent = lent_, weak = weak_from_this()] {
    try {
      cuda::wait_for_streams(device);  // it goes back to the driver at once
      const auto alive = weak.lock();
      if (alive && alive->forget(data, known)) return static_cast<void>(ncclMemFree(data));
      lent->free(data);
    } catch (const Error&) {  // the driver is gone, and the memory with it
    }
  };
  StorageRef storage = Storage::wrap(data, bytes, device_, release);
  PEAL_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, cuda::stream_on(device_)));
  return storage;
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
