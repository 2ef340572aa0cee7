// SPDX-License-Identifier: Apache-2.0
// What the page shows of a measured step of data-parallel training, as JSON: by rank, ops and
// buckets in lanes, each bar [part, begin, end, text] with parts of comm::StepPart and nanoseconds
// from the step's begin; of a bucket also what the model says of its collectives, [begin, end].
//
// Thread safety: a pure function.
#pragma once

#include <peal/comm/record/training_steps.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace peal::launch {

// One collective of a bucket on a rank: when the last rank had begun it, and when this one would
// end it by the model; seconds, as in the run.
struct ModelledBucket {
  double begin = 0, end = 0;
};

// `modelled` by rank of the step, and bucket.
nlohmann::json step_json(const comm::TrainingStep& step,
                         const std::vector<std::vector<std::vector<ModelledBucket>>>& modelled,
                         const std::string& title);

}  // namespace peal::launch
