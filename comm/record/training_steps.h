// SPDX-License-Identifier: Apache-2.0
// Training steps: what a measured run says of data-parallel training, step by step: on each rank
// the ops of forward and backward, and of each bucket where its time went, with the clocks of all
// ranks brought together. So here, unlike on a rank that runs (nn/parallel/step_clock.h), waiting
// for the slowest rank is known and not inferred: it ends when the last rank's first round begins.
// Thread safety: values, and pure functions of them.
#pragma once

#include <peal/comm/draw/step_picture.h>
#include <peal/comm/draw/timeline.h>
#include <peal/comm/record/bucket_phases.h>
#include <peal/comm/record/measured_run.h>

#include <cstdint>
#include <string>
#include <vector>

namespace peal::comm {

// Seconds, as in the run.
struct StepBucket {
  std::int64_t bytes = 0;
  std::string label, held_by;
  BucketTime time;
  BucketPhases phases;  // of the transfer `slowest` is waiting for the last rank, the rest the wire
  double slowest = 0;
  double wire() const { return phases.transfer - slowest; }
  // Of the first collective, or when it would have been sent.
  double first_round() const {
    return time.collectives.empty() ? time.sent : time.collectives.front().first;
  }
  double begin() const { return time.ready; }
  double end() const { return time.ready + phases.all(); }
};
struct StepRank {
  int rank = 0;
  MeasuredTraining times;
  std::vector<MeasuredOp> ops;  // the outermost, in order
  std::vector<StepBucket> buckets;
  double exposed() const { return times.end - times.visited; }
};
struct TrainingStep {
  std::uint64_t model = 0, step = 0;
  std::vector<StepRank> ranks;
  double begin() const;  // of the first rank's forward, or backward
  double end() const;    // of the last
  // By bucket: the rank whose first round began last, an index of ranks.
  std::size_t last_rank(std::size_t bucket) const;
};

// In order of their begin.
std::vector<TrainingStep> training_steps(const MeasuredRun& run);
// Of steps that took equally long, the first; of an even number, the later one in the middle.
// REQUIRES: there is one.
const TrainingStep& median_step(const std::vector<TrainingStep>& steps);

// Backward's ops above, buckets below, rank by rank.
StepPicture picture(const TrainingStep& step);
// Adds the ops of all the run, and the phases of its buckets, to its timeline.
void add_training(Timeline& timeline, const MeasuredRun& run,
                  const std::vector<TrainingStep>& steps);

}  // namespace peal::comm
