// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/tools/schedule/view/step_json.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <utility>

namespace peal::launch {

using nlohmann::json;

json step_json(const comm::TrainingStep& step,
               const std::vector<std::vector<std::vector<ModelledBucket>>>& modelled,
               const std::string& title) {
  const auto nanoseconds = [](double seconds) { return std::llround(seconds * 1e9); };
  const double origin = step.begin();
  const comm::StepPicture drawn = picture(step);
  json ranks = json::array();
  for (std::size_t r = 0; r < drawn.panels.size(); ++r) {
    json lanes = json::array();
    const comm::StepPanel& panel = drawn.panels[r];
    for (std::size_t l = 0; l < panel.lanes.size(); ++l) {
      const comm::StepLane& lane = panel.lanes[l];
      json bars = json::array(), model = json::array();
      for (const comm::StepBar& bar : lane.bars) {
        bars.push_back(
            {static_cast<int>(bar.part), nanoseconds(bar.begin), nanoseconds(bar.end), bar.text});
      }
      if (l > 0) {
        for (const ModelledBucket& one : modelled[r][l - 1]) {
          model.push_back({nanoseconds(one.begin - origin), nanoseconds(one.end - origin)});
        }
      }
      lanes.push_back({{"name", lane.name},
                       {"note", lane.note},
                       {"bars", std::move(bars)},
                       {"model", std::move(model)}});
    }
    ranks.push_back({{"name", panel.name},
                     {"exposed", nanoseconds(step.ranks[r].exposed())},
                     {"lanes", std::move(lanes)}});
  }
  json parts = json::array();
  for (int part = 0; part <= static_cast<int>(comm::StepPart::copy_out); ++part) {
    parts.push_back(name(static_cast<comm::StepPart>(part)));
  }
  return {{"kind", "step"},
          {"title", title},
          {"end", nanoseconds(step.end() - origin)},
          {"parts", std::move(parts)},
          {"ranks", std::move(ranks)}};
}

}  // namespace peal::launch
