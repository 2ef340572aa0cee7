// SPDX-License-Identifier: Apache-2.0
// The models of nn/models by name, as they are by default. Thread safety: tables are constant.
#pragma once

#include <peal/nn/module.h>

#include <functional>
#include <string>
#include <vector>

namespace peal::launch {

struct KnownModel {
  std::string name, what;
  std::function<nn::Module()> make;
};
const std::vector<KnownModel>& known_models();

// Whatever the case of its letters. Error that lists them, and names the nearest.
const KnownModel& model_named(const std::string& name);

}  // namespace peal::launch
