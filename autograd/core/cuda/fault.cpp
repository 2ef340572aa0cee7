// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/cuda/fault.h>
#include <peal/autograd/core/cuda/relaxed.h>

#include <array>
#include <atomic>
#include <mutex>

namespace peal::cuda {
namespace {

constexpr std::size_t places = 64;  // as many as the allocator serves

// Made when first asked for, and never destroyed.
std::array<std::atomic<Fault*>, places>& faults() {
  static auto& all = *new std::array<std::atomic<Fault*>, places>{};
  return all;
}

}  // namespace

Fault* fault_of(Device device) {
  auto& place = faults().at(static_cast<std::size_t>(device.index));
  if (Fault* found = place.load(std::memory_order_acquire)) return found;
  static auto& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  if (Fault* found = place.load(std::memory_order_acquire)) return found;
  use(device);
  const Relaxed relaxed;
  void* data = nullptr;
  PEAL_CUDA_CHECK(cudaHostAlloc(&data, sizeof(Fault), cudaHostAllocPortable));
  auto* fault = new (data) Fault{FaultKind::none, 0, 0};
  place.store(fault, std::memory_order_release);
  return fault;
}

void check_fault(Device device) {
  volatile Fault* fault =
      faults().at(static_cast<std::size_t>(device.index)).load(std::memory_order_acquire);
  if (fault == nullptr || fault->kind == FaultKind::none) return;
  const long long value = fault->value, limit = fault->limit;
  fault->kind = FaultKind::none;
  fail(concat("cuda: an index or class of ", value, " came to an op on ", device,
              ", expected one in [0, ", limit,
              "): the target of a loss, or the index of embedding, gather or index_select, in the "
              "work that this thread has just waited for; its results mean nothing"));
}

}  // namespace peal::cuda
