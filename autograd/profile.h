// SPDX-License-Identifier: Apache-2.0
// The profiler's report: a Trace (autograd/core/trace.h) read as a table, against what the machine
// can do, and the memory that was used. Thread safety: reentrant.
#pragma once

#include <peal/autograd/ceilings.h>
#include <peal/autograd/core/trace.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace peal {

// One line an op: calls, then forward and backward each ms, GFLOP/s and GB/s, then both together in
// ms, and beside it what they could take by the ceilings (least_time), which ceiling that is, the
// gap between the two in ms, and the share that is reached; and a line with the sums. The largest
// gap comes first: that is where most is to be won. It is below 0, and the share above 100 %, where
// a kernel needs fewer operations than the definition, or operands lie nearer than they might.
// Calls and ms are divided by `steps`.
std::string profile_table(const Trace& trace, std::int64_t steps, const Ceilings& ceilings);

struct MemoryMarks {
  std::size_t tensors = 0;   // bytes of the device's tensors at most at once
  std::size_t cached = 0;    // bytes that the allocator holds for reuse now
  std::size_t resident = 0;  // of the process at most (VmHWM); 0 where the system does not say
};
MemoryMarks memory_marks(Device device = {});

// The whole report. The memory is read before the ceilings are measured, which takes some itself.
std::string profile_report(const Trace& trace, std::int64_t steps);

// Writes trace.json() to a file. Error where it cannot be written.
void save_trace(const std::filesystem::path& path, const Trace& trace);

}  // namespace peal
