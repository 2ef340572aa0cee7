// SPDX-License-Identifier: Apache-2.0
// Device: where bytes live. MemorySpace is the small table of what each kind of device can do with
// bytes; a new device fills in one table. Thread safety: tables are constant and their entries
// thread safe.
#pragma once

#include <peal/autograd/core/allocator.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>

#include <fmt/core.h>

namespace peal {

enum class DeviceType : std::uint8_t { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

std::string name_of(Device device);  // "cpu", "cuda:0"
std::ostream& operator<<(std::ostream& out, Device device);
// "cpu", "cuda" (index 0) or "cuda:N"; anything else is an Error that lists these.
Device parse_device(const std::string& text);

struct DeviceDescription {
  std::string name;        // "NVIDIA H200"
  std::string uuid;        // "GPU-8f9c...": tells whether two ranks have one device
  std::size_t memory = 0;  // bytes
  int multiprocessors = 0;
};
// How many there are: 0 where the build or the machine has none, never an error.
int device_count(DeviceType type);
// Error where there is no such device. The CPU's says nothing.
DeviceDescription describe(Device device);

struct MemorySpace {
  void* (*allocate)(Device, std::size_t bytes);  // aligned to 64 bytes; never null for bytes > 0
  void (*release)(Device, void* data, std::size_t bytes);  // bytes as given to allocate
  void (*zero)(Device, void* data, std::size_t bytes);     // ordered on the current stream
  // Copies between this device and the CPU, or within this device, ordered on the current stream.
  // With `wait` it returns when dst may be read and src be changed by anyone.
  void (*copy)(void* dst, Device to, const void* src, Device from, std::size_t bytes, bool wait);
  // The block is used on that stream too (Tensor::record_stream).
  void (*record_stream)(Device, void* data, void* stream);
  AllocatorStatistics (*statistics)(Device);
  void (*reset_peak)(Device);   // statistics' peak becomes what is in use now
  void (*empty_cache)(Device);  // gives cached blocks back to the system
  int (*count)();
  DeviceDescription (*describe)(Device);
};

// Error where the build or the machine has no such device.
const MemorySpace& memory_space(Device device);

// Called once by a library that brings a device (the CUDA parts) before first use.
void register_memory_space(DeviceType type, const MemorySpace* space);

}  // namespace peal

template <>
struct fmt::formatter<peal::Device> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(peal::Device device, Context& context) const {
    return fmt::format_to(context.out(), "{}", peal::name_of(device));
  }
};
