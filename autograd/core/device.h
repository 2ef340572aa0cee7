// SPDX-License-Identifier: Apache-2.0
// Device: where bytes live. MemorySpace is the small table of what each kind of device can do with
// bytes; a new device fills in one table. Thread safety: tables are constant and their entries
// thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
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
// "cpu", "cuda" (index 0) or "cuda:N"; anything else is an Error that lists these.
Device parse_device(const std::string& text);

struct MemorySpace {
  void* (*allocate)(Device, std::size_t bytes);  // aligned to 64 bytes; never null for bytes > 0
  void (*release)(Device, void* data, std::size_t bytes);  // bytes as given to allocate
  void (*zero)(Device, void* data, std::size_t bytes);     // ordered on the context's stream
  // Copies between this device and the CPU, or within this device; returns when dst may be read.
  void (*copy)(void* dst, Device to, const void* src, Device from, std::size_t bytes);
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
