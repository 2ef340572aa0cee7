// SPDX-License-Identifier: Apache-2.0
// What the page shows of a pipeline, as JSON: by rank, in order, [pass, part, micro-batch, begin,
// end, the rank that its result goes to or -1, its text, the ranks that skips take it to]; passes
// are those of comm::pipeline::Pass.
//
// Thread safety: a pure function.
#pragma once

#include <peal/comm/pipeline/simulate.h>
#include <peal/comm/pipeline/verify.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace peal::launch {

struct ViewedPipeline {
  comm::pipeline::Problem problem;
  comm::pipeline::Run run;
  comm::pipeline::Verdict verdict;
  double message = 0;       // what one takes
  std::string title, note;  // of what is idle
};

nlohmann::json pipeline_json(const ViewedPipeline& viewed);

}  // namespace peal::launch
