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

// Of destructors, with peers, of whom some may be gone.
constexpr std::chrono::milliseconds patience{10'000};
// Of who aborts, with a call that is being made: nearly all end by themselves at once.
constexpr std::chrono::milliseconds moment{500};

int policy_of(CtaPolicy policy) {
  switch (policy) {
    case CtaPolicy::efficiency:
      return NCCL_CTA_POLICY_EFFICIENCY;
    case CtaPolicy::zero:
      return NCCL_CTA_POLICY_ZERO;
    default:
      return NCCL_CTA_POLICY_DEFAULT;
  }
}

ncclConfig_t configuration(const NcclOptions& options) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  if (options.cta_policy) config.CTAPolicy = policy_of(*options.cta_policy);
  if (options.min_ctas) config.minCTAs = *options.min_ctas;
  if (options.max_ctas) config.maxCTAs = *options.max_ctas;
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

std::string not_ended(std::string_view what, Device device, std::chrono::milliseconds deadline) {
  return concat("[nccl] ", what, " on ", device, " has not ended for ",
                std::chrono::duration<double>(deadline).count(),
                " s (PEAL_TIMEOUT): not every rank takes part, or they do not reach each other "
                "(NCCL_DEBUG=INFO says where NCCL stands, NCCL_SOCKET_IFNAME by which network)");
}

// What a thread aside makes. Who has given it up leaves its end to that thread.
struct Making {
  std::mutex mutex;
  bool given_up = false;
  ncclComm_t handle = nullptr;
};

}  // namespace

Communicator::Communicator(ncclComm_t handle, Device device, const NcclOptions& options,
                           std::chrono::milliseconds deadline)
    : device_(device),
      options_(options),
      deadline_(deadline),
      handle_(handle),
      lent_(std::make_shared<Lent>()) {}

std::shared_ptr<Communicator> Communicator::create(const ncclUniqueId& id, int rank, int world,
                                                   Device device, const NcclOptions& options,
                                                   std::chrono::milliseconds deadline,
                                                   const Hopeless& hopeless) {
  return made(concat("rank ", rank, " of ", world, ", ncclCommInitRankConfig"), device, options,
              deadline, hopeless, [=](ncclComm_t* handle, ncclConfig_t* config) {
                return ncclCommInitRankConfig(handle, world, id, rank, config);
              });
}

// In a thread aside, as NCCL has nothing that ends it before there is a communicator to abort.
std::shared_ptr<Communicator> Communicator::made(const std::string& what, Device device,
                                                 const NcclOptions& options,
                                                 std::chrono::milliseconds deadline,
                                                 const Hopeless& hopeless, const Make& make) {
  const auto making = std::make_shared<Making>();
  const Aside aside(device, [=] {
    ncclComm_t handle = nullptr;
    ncclConfig_t config = configuration(options);
    const ncclResult_t result = make(&handle, &config);
    PEAL_CHECK(result == ncclSuccess, "[nccl] ", what, " on ", device, ": ",
               reason(result, handle));
    const std::lock_guard guard(making->mutex);
    making->handle = handle;
    if (making->given_up && handle != nullptr) static_cast<void>(ncclCommAbort(handle));
  });
  try {
    PEAL_CHECK(aside.wait(deadline, hopeless), not_ended(what, device, deadline));
  } catch (const Error&) {
    const std::lock_guard guard(making->mutex);
    making->given_up = true;
    if (making->handle != nullptr) static_cast<void>(ncclCommAbort(making->handle));
    throw;
  }
  const std::lock_guard guard(making->mutex);
  if (making->handle == nullptr) return nullptr;
  return std::make_shared<Communicator>(making->handle, device, options, deadline);
}

std::shared_ptr<Communicator> Communicator::split(int colour, int key, const Hopeless& hopeless) {
  try {
    return made("ncclCommSplit", device_, options_, deadline_, hopeless,
                [=, self = shared_from_this()](ncclComm_t* handle, ncclConfig_t* config) {
                  const std::lock_guard guard(self->calls_);
                  return ncclCommSplit(self->usable(), colour, key, handle, config);
                });
  } catch (const Error&) {
    abort();  // it may still be at it, and would let no other call be made
    throw;
  }
}

// A call of this communicator's. Whoever gives it up ends it: nobody else would, and it lets no
// other be made.
void Communicator::wait_for(const Aside& aside, std::string_view what, const Hopeless& hopeless) {
  const auto hopeless_here = [&] {
    try {
      hopeless();
    } catch (...) {
      abort();
      throw;
    }
  };
  if (aside.wait(deadline_, hopeless_here)) return;
  abort();
  fail(not_ended(what, device_, deadline_));
}

// An abort would free what a call that has not come back is still at. So where NCCL does not come
// to the communicator's end it stays as it is, with what it knows; nothing of it is in a queue by
// then.
Communicator::~Communicator() {
  if (handle_ == nullptr) return;
  const auto limit = std::min(deadline_, patience);
  try {
    const Aside aside(device_, [handle = handle_, device = device_] {
      const ncclResult_t result = ncclCommFinalize(handle);
      PEAL_CHECK(result == ncclSuccess, "[nccl] ncclCommFinalize on ", device, ": ",
                 reason(result, handle));
    });
    if (!aside.wait(limit, [] {})) {
      log_warning(not_ended("ncclCommFinalize", device_, limit), "; its memory stays");
      return;
    }
  } catch (const Error& error) {
    log_warning(error.what());
    abort();
    return;
  }
  try {
    call("ncclCommDestroy", [](ncclComm_t handle) { return ncclCommDestroy(handle); });
    lent_->end();
  } catch (const Error& error) {
    log_warning(error.what());
  }
}

// REQUIRES: who calls has calls_.
ncclComm_t Communicator::usable() const {
  const std::lock_guard guard(mutex_);
  PEAL_CHECK(handle_ != nullptr, "[nccl] the communicator on ", device_,
             " was aborted after a failure: its group is of no further use");
  return handle_;
}

void Communicator::call(std::string_view what, const Call& call) {
  const std::lock_guard guard(calls_);
  const ncclComm_t handle = usable();
  const ncclResult_t result = call(handle);
  if (result == ncclSuccess) return;
  static_cast<void>(usable());  // an abort is why, where there was one
  fail(concat("[nccl] ", what, " on ", device_, ": ", reason(result, handle)));
}

void Communicator::check() const {
  const std::lock_guard guard(mutex_);
  PEAL_CHECK(handle_ != nullptr, "[nccl] the communicator on ", device_,
             " was aborted after a failure: its group is of no further use");
  ncclResult_t state = ncclSuccess;
  ncclResult_t result = ncclCommGetAsyncError(handle_, &state);
  if (result == ncclSuccess && state != ncclInProgress) result = state;
  PEAL_CHECK(result == ncclSuccess, "[nccl] an operation on ", device_, ": ",
             reason(result, handle_));
}

void Communicator::abort() {
  ncclComm_t handle = nullptr;
  {
    const std::lock_guard guard(mutex_);
    handle = std::exchange(handle_, nullptr);
  }
  if (handle == nullptr) return;
  // A call that waits for a peer is ended by the abort alone; others are better let through.
  const std::unique_lock calls(calls_, moment);
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

}  // namespace peal::comm
