// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/reduce/cpu/combine.h>
#include <peal/comm/reduce/cpu/reduce.h>
#include <peal/comm/reduce/table.h>

#include <atomic>

namespace peal::comm {
namespace {

constexpr WireKernels cpu_kernels = {.reduce = reduce_cpu,
                                     .scale = scale_cpu,
                                     .divide = divide_cpu,
                                     .widen = widen_cpu,
                                     .narrow = narrow_cpu,
                                     .combine = combine};

// Written once while a device library is loaded, read ever after.
std::atomic<const WireKernels*> cuda_kernels{nullptr};

}  // namespace

const WireKernels& wire_kernels(Device device) {
  if (device.type == DeviceType::cpu) return cpu_kernels;
  const WireKernels* kernels = cuda_kernels.load(std::memory_order_acquire);
  PEAL_CHECK(kernels != nullptr, "comm: no kernels reduce on ", device,
             " in this build; configure with -DPEAL_CUDA=ON");
  return *kernels;
}

void register_wire_kernels(DeviceType type, const WireKernels* kernels) {
  PEAL_CHECK(type == DeviceType::cuda, "comm: the CPU's kernels are built in");
  cuda_kernels.store(kernels, std::memory_order_release);
}

}  // namespace peal::comm
