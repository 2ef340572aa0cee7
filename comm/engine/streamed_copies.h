// SPDX-License-Identifier: Apache-2.0
// Streamed copies: copies of one-sided programs that go round the caches, as sums do
// (reduce/cpu/combine.h). Thread safety: pure functions.
#pragma once

#include <peal/comm/reduce/table.h>
#include <peal/comm/schedule/schedule.h>

#include <cstddef>
#include <cstdint>

namespace peal::comm {

// One from where a rank has it to where another wants it, where all outgrows the caches: measured
// 1.2 to 1.3 times as fast. What came through a room lies in them, and goes slower round them.
inline bool may_stream(const Step& step) {
  return step.dst.buffer == Buffer::out && step.src.buffer != Buffer::room;
}

// memcpy on the CPU, of what is equal or disjoint.
inline void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to == from || bytes == 0) return;
  wire_kernels(Device{}).combine(DType::u8, ReduceOp::sum, {&to, 1}, {&from, 1},
                                 static_cast<std::int64_t>(bytes), true, 1);
}

}  // namespace peal::comm
