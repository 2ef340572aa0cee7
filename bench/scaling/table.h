// SPDX-License-Identifier: Apache-2.0
// Table: how the time of a step changes with the number of ranks, measured and modelled, for
// people, for programs, and as curves. Thread safety: a value.
#pragma once

#include <peal/launch/tools/schedule/plot.h>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace peal::bench {

struct ScalingLine {
  int ranks = 1;
  std::int64_t batch = 0;         // a rank's
  double seconds = 0, model = 0;  // a step
};

class ScalingTable {
 public:
  // `samples` of an epoch.
  ScalingTable(std::string name, std::int64_t samples)
      : name_(std::move(name)), samples_(samples) {}
  // The first is of one rank.
  void add(const ScalingLine& line) { lines_.push_back(line); }

  // To stdout. Speed-up: how many times as many samples a second go through as by one rank.
  void print() const;
  launch::Plot plot() const;  // of speed-ups
  nlohmann::json json() const;

 private:
  double speed_up(double ScalingLine::*time, const ScalingLine& line) const;

  std::string name_;
  std::int64_t samples_;
  std::vector<ScalingLine> lines_;
};

}  // namespace peal::bench
