// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/reduce/cpu/combine.h>
#include <peal/comm/reduce/cpu/reduce.h>
#include <peal/comm/reduce/table.h>

#include <atomic>
#include <fstream>

namespace peal::comm {
namespace {

constexpr WireKernels cpu_kernels = {.reduce = reduce_cpu,
                                     .scale = scale_cpu,
                                     .divide = divide_cpu,
                                     .widen = widen_cpu,
                                     .narrow = narrow_cpu,
                                     .combine = combine};

// Bytes. What the kernel says, for the C library takes some for a whole machine's; 32 MiB, a usual
// size, where it says nothing.
std::size_t last_level_cache() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  std::size_t kibibytes = 0;
  file >> kibibytes;  // "32768K"
  return (file && kibibytes > 0 ? kibibytes : std::size_t{32} << 10) << 10;
}

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

bool outgrows_caches(std::size_t bytes, int ranks) {
  static const std::size_t cache = last_level_cache();
  return bytes >= cache / (2 * static_cast<std::size_t>(ranks));
}

void register_wire_kernels(DeviceType type, const WireKernels* kernels) {
  PEAL_CHECK(type == DeviceType::cuda, "comm: the CPU's kernels are built in");
  cuda_kernels.store(kernels, std::memory_order_release);
}

}  // namespace peal::comm
