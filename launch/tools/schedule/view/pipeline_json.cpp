// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/tools/schedule/view/pipeline_json.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <utility>

namespace peal::launch {

using nlohmann::json;

namespace {

// The ranks that its result goes past others to.
json skipped_to(const comm::pipeline::Problem& problem, const comm::pipeline::Action& action) {
  json ranks = json::array();
  for (const int skip : takers(problem, action)) {
    if (skip == comm::pipeline::no_part) continue;
    const int to = receiver(problem, action, skip);
    if (to != comm::pipeline::no_rank) ranks.push_back(to);
  }
  return ranks;
}

// Shares that no binary fraction has are written shortly, and equal ones alike.
double rounded(double time) { return std::round(time * 1e6) / 1e6; }

}  // namespace

json pipeline_json(const ViewedPipeline& viewed) {
  const comm::pipeline::Problem& problem = viewed.problem;
  json ranks = json::array();
  for (const auto& activities : viewed.run.ranks) {
    json mine = json::array();
    for (const comm::pipeline::Activity& one : activities) {
      const comm::pipeline::Action& action = one.action;
      mine.push_back({static_cast<int>(action.pass), action.part, action.micro_batch,
                      rounded(one.begin), rounded(one.end), receiver(problem, action),
                      text(action, problem), skipped_to(problem, action)});
    }
    ranks.push_back(std::move(mine));
  }
  return {{"kind", "pipeline"},
          {"title", viewed.title},
          {"note", viewed.note},
          {"stages", problem.stages},
          {"chunks", problem.chunks},
          {"splits", splits_backward(problem.kind)},
          {"message", rounded(viewed.message)},
          {"makespan", rounded(viewed.run.makespan)},
          {"work", rounded(viewed.run.work)},
          {"stash", viewed.run.stash},
          {"verdict", {{"ok", viewed.verdict.ok}, {"why", viewed.verdict.why}}},
          {"ranks", std::move(ranks)}};
}

}  // namespace peal::launch
