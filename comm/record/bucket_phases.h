// SPDX-License-Identifier: Apache-2.0
// Bucket phases: where the time of a gradient bucket goes between its last gradient and its result,
// from when its collectives began and ended. A pure function of times, for a run that is under way
// (nn/parallel/step_clock.h) and for one that is read from files (training_steps.h).
//
//   ready          sent            begin        first                         end          over
//     | queue       | copy-in       | queue       | copy-in, transfer, copy-out | copy-out   |
//
// `sent` is when the bucket's turn had come, `first` when a collective's first round began. What a
// communication hook computes before its collectives is copy-in (without a hook that is the call,
// and queue), and what it computes after them or between them copy-out; so are copies into and out
// of memory that the ranks share. The transfer is all the rest, in which the rank waits for the
// slowest, and then for messages and sums. Thread safety: values.
#pragma once

#include <peal/comm/schedule/schedule.h>

#include <vector>

namespace peal::comm {

// Seconds.
struct CollectiveTime {
  double begin = 0, first = 0, end = 0;
  double copied_in = 0, copied_out = 0;  // of these

  // A step of it, which copied from `moves` to `end`.
  void count(const Step& step, double moves, double end);
};

// Seconds. `over` is 0 where there is no hook.
struct BucketTime {
  double ready = 0, sent = 0, over = 0;
  std::vector<CollectiveTime> collectives{};  // in order
};

struct BucketPhases {
  double queue = 0, copy_in = 0, transfer = 0, copy_out = 0;
  double all() const { return queue + copy_in + transfer + copy_out; }  // since `ready`
};
BucketPhases phases(const BucketTime& bucket);

}  // namespace peal::comm
