// SPDX-License-Identifier: Apache-2.0
// Logging data: where the time of a step of DDP went, measured (PyTorch: _get_ddp_logging_data).
// Seconds, of this rank, but where it says otherwise. Taken every DDPOptions::measure_every steps,
// and in each under PEAL_TRACE, which has the same for all ranks (peal-schedule trace --step).
// Where a step's collectives had no room among what is recorded, as in a long run under PEAL_TRACE,
// what rests on them is NaN, and last_rank -1. Thread safety: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace peal::nn {

// One bucket's way; the phases follow each other and add up.
struct BucketTimes {
  std::int64_t bytes = 0;
  double ready = 0;  // since backward began: its last gradient had come
  // Until its turn among the buckets, and among the group's operations, had come.
  double queue = 0;
  // What a hook computes before its collectives, and copies into memory that ranks share; none
  // where gradients lie in such memory, or messages take them from where they are.
  double copy_in = 0;
  // Waiting for the slowest rank. Inferred: a collective ends on all ranks at about one time, so
  // what a rank spends in it beyond the rank that spends least, it has waited.
  double slowest = 0;
  double wire = 0;      // messages and sums
  double copy_out = 0;  // as copy_in
  double exposed = 0;   // in which this rank did nothing but wait for this bucket
  int last_rank = -1;   // the one that spent least, for which the others waited; the same on all
  // The parameter whose gradient came last in the bucket on that rank, or "none".
  std::string held_back_by;
};

struct DDPLoggingData {
  std::uint64_t step = 0;  // the measured one; 0: none yet
  // Forward of the wrapper; from its end until backward has visited everything; from the first
  // bucket's begin to the last one's end; how much of that lies in backward.
  double forward_compute_time = 0, backward_compute_time = 0, backward_comm_time = 0;
  double backward_compute_comm_overlap_time = 0;
  double exposed_comm_time = 0;          // in which this rank did nothing but wait for gradients
  double largest_exposed_comm_time = 0;  // of all ranks
  std::vector<BucketTimes> buckets;
  // By parameter that the wrapper has, since backward began; NaN where none came.
  std::vector<double> gradient_ready;
};

// A table for people.
std::string describe(const DDPLoggingData& data);

}  // namespace peal::nn
