// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/device.h>
#include <peal/autograd/core/error.h>
#if defined(PEAL_CUDA)
#include <peal/autograd/core/cuda/device.h>
#endif

#include <atomic>
#include <charconv>
#include <cstring>

namespace peal {
namespace {

const MemorySpace cpu_space = {
    [](Device, std::size_t bytes) { return cpu_allocate(bytes); },
    [](Device, void* data, std::size_t bytes) { cpu_release(data, bytes); },
    [](Device, void* data, std::size_t bytes) {
      if (bytes != 0) std::memset(data, 0, bytes);
    },
    [](void* dst, Device, const void* src, Device, std::size_t bytes, bool) {
      if (bytes != 0) std::memmove(dst, src, bytes);
    },
    [](Device, void*, void*) {},
    [](Device) { return cpu_allocator_statistics(); },
    [](Device) { cpu_reset_peak(); },
    [](Device) { cpu_empty_cache(); },
    [] { return 1; },
    [](Device) { return DeviceDescription{}; },
};

// Written once while a device library is loaded, read ever after.
std::atomic<const MemorySpace*> cuda_space{nullptr};

#if defined(PEAL_CUDA)
[[maybe_unused]] const bool cuda_registered = [] {
  cuda::register_spaces();
  return true;
}();
#endif

}  // namespace

std::string name_of(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

Device parse_device(const std::string& text) {
  if (text == "cpu") return {};
  if (text == "cuda") return {DeviceType::cuda, 0};
  if (text.starts_with("cuda:")) {
    int index = -1;
    const char* end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data() + 5, end, index);
    if (problem == std::errc{} && stop == end && index >= 0) return {DeviceType::cuda, index};
  }
  fail(concat("device: expected cpu, cuda or cuda:N, got '", text, "'"));
}

const MemorySpace& memory_space(Device device) {
  if (device.type == DeviceType::cpu) return cpu_space;
  const MemorySpace* space = cuda_space.load(std::memory_order_acquire);
  PEAL_CHECK(
      space != nullptr, "device: ", device,
      " asked for, but this build has no CUDA memory; configure with -DPEAL_CUDA=ON or use cpu");
  return *space;
}

int device_count(DeviceType type) {
  if (type == DeviceType::cpu) return cpu_space.count();
  const MemorySpace* space = cuda_space.load(std::memory_order_acquire);
  return space == nullptr ? 0 : space->count();
}

DeviceDescription describe(Device device) { return memory_space(device).describe(device); }

void register_memory_space(DeviceType type, const MemorySpace* space) {
  PEAL_CHECK(type == DeviceType::cuda, "device: the CPU's memory is built in");
  cuda_space.store(space, std::memory_order_release);
}

}  // namespace peal
