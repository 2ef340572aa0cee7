// SPDX-License-Identifier: Apache-2.0
// Training notes: what training leaves in a trace (recorder.h) beside its collectives: ops, and the
// steps and buckets of data-parallel training. Times are nanoseconds of the rank's steady clock, 0
// where there is none. Thread safety: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace peal::comm {

// An op of forward or backward, of the thread that trains.
struct OpNote {
  std::int64_t begin = 0, end = 0;
  bool backward = false, outermost = true;
  std::string name;
};

// A step of the data-parallel model with that tag.
struct StepNote {
  std::uint64_t model = 0, step = 0;
  std::int64_t forward = 0;   // its begin; 0: without a batch
  std::int64_t backward = 0;  // forward's end
  std::int64_t visited = 0;   // backward has visited everything
  std::int64_t end = 0;       // gradients are there
};

struct BucketNote {
  std::uint64_t model = 0, step = 0;
  std::int64_t bucket = 0, bytes = 0;
  std::int64_t ready = 0, sent = 0, over = 0;  // as in bucket_phases.h
  std::string held_by;                         // the parameter whose gradient came last
  std::string label;                           // what it is called
  std::vector<std::int32_t> operations;        // its collectives, by number in the trace
};

}  // namespace peal::comm
