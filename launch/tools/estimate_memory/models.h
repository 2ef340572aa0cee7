// SPDX-License-Identifier: Apache-2.0
// The models of nn/models by name, as they are by default, and what a step of each computes. Thread
// safety: tables are constant.
#pragma once

#include <peal/nn/module.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace peal::launch {

struct KnownModel {
  std::string name, what;
  std::function<nn::Module()> make;
  // Forward, loss and backward of so many samples as it is trained with, in the parameters' type.
  std::function<void(nn::Module& model, std::int64_t samples)> batch;
  std::array<std::int64_t, 2> measured;  // as activation_memory() has it
};
const std::vector<KnownModel>& known_models();

// Whatever the case of its letters. Error that lists them, and names the nearest.
const KnownModel& model_named(const std::string& name);

}  // namespace peal::launch
