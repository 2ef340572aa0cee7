// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/transport/nccl/communicator.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Of destructors, with peers, of whom some may be gone.
constexpr std::chrono::milliseconds patience{10'000};

ncclConfig_t configuration() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

std::string reason(ncclResult_t result, ncclComm_t handle) {
  const char* last = ncclGetLastError(handle);
  std::string text = ncclGetErrorString(result);
  if (last != nullptr && *last != 0) text += concat(" (", last, ")");
  // It refuses ranks that share a GPU with this.
  if (result == ncclInvalidUsage) {
    text +=
        "; ranks need a GPU each: see which rank has which (nvidia-smi -L, CUDA_VISIBLE_DEVICES), "
        "or, "
        "for tests on one GPU, start each process with an NCCL_HOSTID of its own and "
        "NCCL_SOCKET_IFNAME=lo";
  }
  return text;
}

}  // namespace

// A communicator that is being made; it is there once NCCL is done with it.
class Communicator::Making {
 public:
  explicit Making(Device device) { cuda::use(device); }
  ~Making() {
    if (handle != nullptr) static_cast<void>(ncclCommAbort(handle));
  }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;
  ncclComm_t handle = nullptr;
};

// Memory that NCCL knows and nobody uses any more. It may be freed once the communicator has
// forgotten all, which after a failure may be late, and in another thread.
class Communicator::Lent {
 public:
  void free(void* data) {
    const std::lock_guard guard(mutex_);
    if (over_) return static_cast<void>(ncclMemFree(data));
    waiting_.push_back(data);
  }
  // The communicator is no more.
  void end() {
    const std::lock_guard guard(mutex_);
    over_ = true;
    for (void* data : waiting_) static_cast<void>(ncclMemFree(data));
    waiting_.clear();
  }

 private:
  std::mutex mutex_;
  bool over_ = false;
  std::vector<void*> waiting_;
};

Communicator::Communicator(ncclComm_t handle, Device device, std::chrono::milliseconds deadline)
    : handle_(handle), device_(device), deadline_(deadline), lent_(std::make_shared<Lent>()) {}

std::shared_ptr<Communicator> Communicator::create(const ncclUniqueId& id, int rank, int world,
                                                   Device device,
                                                   std::chrono::milliseconds deadline,
                                                   const Hopeless& hopeless) {
  Making making(device);
  ncclConfig_t config = configuration();
  const ncclResult_t result = ncclCommInitRankConfig(&making.handle, world, id, rank, &config);
  PEAL_CHECK(result == ncclSuccess || result == ncclInProgress, "[nccl] rank ", rank, " on ",
             device, ": ncclCommInitRankConfig: ", reason(result, making.handle));
  return finished(making, "ncclCommInitRankConfig", device, deadline, hopeless);
}

std::shared_ptr<Communicator> Communicator::split(int colour, int key, const Hopeless& hopeless) {
  // NCCL writes the handle when it is done, which after a failure may be never or late: then it
  // must still be there.
  auto kept = std::make_unique<Making>(device_);
  Making& making = *kept;
  {
    const auto guard = lock();
    ncclConfig_t config = configuration();
    expect(ncclCommSplit(handle_, colour, key, &making.handle, &config), "ncclCommSplit");
  }
  try {
    settle("ncclCommSplit", deadline_, hopeless);
  } catch (const Error&) {
    static_cast<void>(kept.release());
    throw;
  }
  if (colour == NCCL_SPLIT_NOCOLOR) return nullptr;
  return finished(making, "ncclCommSplit", device_, deadline_, hopeless);
}

// The communicator that is being made, once it is there.
std::shared_ptr<Communicator> Communicator::finished(Making& making, std::string_view call,
                                                     Device device,
                                                     std::chrono::milliseconds deadline,
                                                     const Hopeless& hopeless) {
  auto made =
      std::make_shared<Communicator>(std::exchange(making.handle, nullptr), device, deadline);
  try {
    made->settle(call, deadline, hopeless);
  } catch (const Error&) {
    made->abort();  // it cannot be finalised
    throw;
  }
  return made;
}

Communicator::~Communicator() {
  if (handle_ == nullptr) return;
  try {
    expect(ncclCommFinalize(handle_), "ncclCommFinalize");
    settle("ncclCommFinalize", std::min(deadline_, patience), [] {});
    expect(ncclCommDestroy(handle_), "ncclCommDestroy");
    lent_->end();
  } catch (const Error& error) {
    log_warning(error.what());
    abort();
  }
}

void Communicator::expect(ncclResult_t result, std::string_view call) const {
  PEAL_CHECK(result == ncclSuccess || result == ncclInProgress, "[nccl] ", call, " on ", device_,
             ": ", reason(result, handle_));
}

bool Communicator::busy() const {
  const auto guard = lock();
  PEAL_CHECK(handle_ != nullptr, "[nccl] the communicator on ", device_,
             " was aborted after a failure: its group is of no further use");
  ncclResult_t state = ncclSuccess;
  expect(ncclCommGetAsyncError(handle_, &state), "ncclCommGetAsyncError");
  expect(state, "an operation");
  return state == ncclInProgress;
}

void Communicator::check() const {
  const std::unique_lock guard(mutex_, std::try_to_lock);
  if (guard) static_cast<void>(busy());
}

// Until NCCL has done what was asked.
void Communicator::settle(std::string_view call, std::chrono::milliseconds deadline,
                          const Hopeless& hopeless) const {
  const auto start = Clock::now();
  while (busy()) {
    hopeless();
    PEAL_CHECK(Clock::now() - start < deadline, "[nccl] ", call, " on ", device_,
               " has not ended for ", std::chrono::duration<double>(deadline).count(),
               " s (PEAL_TIMEOUT): not every rank takes part");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void Communicator::abort() {
  const auto guard = lock();
  const ncclComm_t handle = std::exchange(handle_, nullptr);
  if (handle == nullptr) return;
  if (!captured_) {
    static_cast<void>(ncclCommAbort(handle));
    return lent_->end();
  }
  // NCCL ends the kernels at once, but comes back only when no graph has any of them, and who calls
  // this may hold a lock that whoever has the graph waits for.
  std::thread([handle, device = device_, lent = lent_] {
    try {
      cuda::use(device);
    } catch (const Error&) {  // the driver is gone, and the kernels with it
    }
    static_cast<void>(ncclCommAbort(handle));
    lent->end();
  }).detach();
}

// The memory is to be given back. False where it must be kept until the communicator's end.
bool Communicator::forget(void* known) const {
  try {
    settle("an earlier call", std::min(deadline_, patience), [] {});
  } catch (const Error&) {  // after a failure
  }
  const auto guard = lock();
  return handle_ != nullptr && ncclCommDeregister(handle_, known) == ncclSuccess;
}

StorageRef Communicator::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  settle("an earlier call", deadline_, [] {});
  const auto guard = lock();
  cuda::use(device_);
  void* data = nullptr;
  if (ncclMemAlloc(&data, bytes) != ncclSuccess) return nullptr;
  void* known = nullptr;
  const ncclResult_t result = ncclCommRegister(handle_, data, bytes, &known);
  if (result != ncclSuccess) {
    static_cast<void>(ncclMemFree(data));
    expect(result, "ncclCommRegister");
    return nullptr;
  }
  const auto release = [data, known, device = device_, lent = lent_, weak = weak_from_this()] {
    try {
      cuda::wait_for_streams(device);  // it goes back to the driver at once
      const auto alive = weak.lock();
      if (alive && alive->forget(known)) return static_cast<void>(ncclMemFree(data));
      lent->free(data);
    } catch (const Error&) {  // the driver is gone, and the memory with it
    }
  };
  StorageRef storage = Storage::wrap(data, bytes, device_, release);
  PEAL_CUDA_CHECK(cudaMemsetAsync(data, 0, bytes, cuda::stream_on(device_)));
  return storage;
}

}  // namespace peal::comm
