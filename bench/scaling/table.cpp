// SPDX-License-Identifier: Apache-2.0
#include <peal/bench/scaling/table.h>

#include <fmt/core.h>

namespace peal::bench {

double ScalingTable::speed_up(double ScalingLine::*time, const ScalingLine& line) const {
  const auto rate = [time](const ScalingLine& of) {
    return static_cast<double>(of.ranks) * static_cast<double>(of.batch) / (of.*time);
  };
  return rate(line) / rate(lines_.front());
}

void ScalingTable::print() const {
  fmt::print("\n{}\n{:>6} {:>6} {:>10} {:>10} {:>9} {:>11} {:>12} {:>11}\n", name_, "ranks",
             "batch", "ms a step", "s an epoch", "speed-up", "efficiency", "model: ms",
             "efficiency");
  for (const ScalingLine& line : lines_) {
    const double steps =
        static_cast<double>(samples_) / static_cast<double>(line.batch * line.ranks);
    const double measured = speed_up(&ScalingLine::seconds, line);
    fmt::print("{:>6} {:>6} {:>10.3f} {:>10.3f} {:>9.2f} {:>9.1f} % {:>12.3f} {:>9.1f} %\n",
               line.ranks, line.batch, line.seconds * 1e3, line.seconds * steps, measured,
               100 * measured / line.ranks, line.model * 1e3,
               100 * speed_up(&ScalingLine::model, line) / line.ranks);
  }
}

launch::Plot ScalingTable::plot() const {
  launch::Plot plot{.title = name_ + ": speed-up",
                    .at = {},
                    .curves = {{"measured", {}}, {"model", {}}, {"ideal", {}}},
                    .unit = launch::Plot::Unit::times,
                    .over = launch::Plot::Over::ranks};
  for (const ScalingLine& line : lines_) {
    plot.at.push_back(line.ranks);
    plot.curves[0].values.push_back(speed_up(&ScalingLine::seconds, line));
    plot.curves[1].values.push_back(speed_up(&ScalingLine::model, line));
    plot.curves[2].values.push_back(line.ranks);
  }
  return plot;
}

nlohmann::json ScalingTable::json() const {
  auto list = nlohmann::json::array();
  for (const ScalingLine& line : lines_) {
    list.push_back({{"ranks", line.ranks},
                    {"batch", line.batch},
                    {"seconds", line.seconds},
                    {"model_seconds", line.model}});
  }
  return list;
}

}  // namespace peal::bench
