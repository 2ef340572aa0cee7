// SPDX-License-Identifier: Apache-2.0
// The kernels of the wire behind one table for each kind of device: plain arrays of one type, no
// tensors. What they do is said in cpu/reduce.h, and is the same everywhere. On a device they are
// put into the current stream (stream.h), which the caller has chosen with a StreamGuard; on the
// CPU they are done when they return. Thread safety: tables are constant.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/autograd/core/dtype.h>
#include <peal/comm/reduce/reduce_op.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace peal::comm {

struct WireKernels {
  void (*reduce)(DType dtype, ReduceOp op, void* dst, const void* src, std::int64_t count);
  void (*scale)(DType dtype, void* data, double factor, std::int64_t count);
  void (*divide)(DType dtype, void* data, std::int64_t divisor, std::int64_t count);
  void (*widen)(DType dtype, float* dst, const void* src, std::int64_t count);
  void (*narrow)(DType dtype, void* dst, const float* src, std::int64_t count);
  // As cpu/combine.h says; null on devices, where rounds are done one by one.
  void (*combine)(DType dtype, ReduceOp op, std::span<std::byte* const> targets,
                  std::span<const std::byte* const> sources, std::int64_t count, bool streaming,
                  std::int64_t divisor) = nullptr;
};

// Error where the build has none for the device.
const WireKernels& wire_kernels(Device device);

// Of the CPU: so much, stored by each of so many ranks at once and as much again loaded, does not
// fit into the last level of the caches.
bool outgrows_caches(std::size_t bytes, int ranks);

// Called once by a library that brings a device, before first use.
void register_wire_kernels(DeviceType type, const WireKernels* kernels);

}  // namespace peal::comm
