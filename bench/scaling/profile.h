// SPDX-License-Identifier: Apache-2.0
// Profile: a training step of one rank alone, as it was measured: when each gradient came, and what
// came before and after. It is all that the model of a step over many ranks wants of a model
// (nn/parallel/what_if.h), and a file of it can be kept:
//
//   {"model": "resnet50", "batch": 4, "before": s, "backward": s, "after": s,
//    "parameters": [["conv1.weight", elements, s], ...]}
//
// All are f32. Thread safety: values.
#pragma once

#include <peal/bench/models.h>
#include <peal/nn/parallel/what_if.h>

#include <cstdint>
#include <string>
#include <vector>

namespace peal::bench {

struct Profile {
  std::string model;
  std::int64_t batch = 0;
  nn::StepProfile times;
  std::vector<nn::ParameterSpec> parameters;

  double bytes() const;  // of gradients
};

// The quickest step of so many, after one that is not counted: what else the machine does only
// makes steps longer.
Profile measure_profile(const std::string& name, const Model& model, std::int64_t batch, int steps);
// Error where the file cannot be written; or that names it, and says what is wrong with it.
void save_profile(const std::string& path, const Profile& profile);
Profile load_profile(const std::string& path);

}  // namespace peal::bench
