// SPDX-License-Identifier: Apache-2.0
// Trace file: what a rank leaves under PEAL_TRACE, read back line by line as recorder.h says. Times
// are as they were written: nanoseconds of that rank's own clock. Thread safety: values.
#pragma once

#include <peal/comm/record/recorder.h>
#include <peal/comm/schedule/schedule.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace peal::comm {

struct TraceFile {
  struct Step {
    std::size_t operation;  // in operations
    comm::Step step;
    std::int64_t round, begin, moves, end;
  };
  struct Operation {
    std::uint64_t group, sequence, signature;
    std::int64_t element;  // bytes
    std::int64_t begin, end;
    std::string algorithm, text;
  };
  std::int64_t run = 0, dropped = 0;
  int rank = 0, world = 0;
  std::string clock;
  std::vector<ClockBounds> bounds;
  std::map<std::uint64_t, std::vector<int>> groups;  // the world's ranks in each
  std::vector<Operation> operations;
  std::vector<Step> steps;
  std::vector<OpNote> ops;
  std::vector<StepNote> training;
  std::vector<BucketNote> buckets;
};

// Error that names the file, and the line, where it is missing, cut short, or not a trace.
TraceFile read_trace_file(const std::string& path);

}  // namespace peal::comm
