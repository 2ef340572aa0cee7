// SPDX-License-Identifier: Apache-2.0
// Parameter groups: those of one model in two with settings of their own, as tests of states want
// them.
#pragma once

#include <peal/nn/optim/adam.h>

#include <vector>

namespace peal::testing {

// Biases do not decay, and step twice as far as the rest.
inline std::vector<nn::ParameterGroup<nn::AdamWOptions>> two_groups(const NamedTensors& parameters,
                                                                    nn::AdamWOptions options) {
  NamedTensors weights, biases;
  for (const auto& each : parameters) {
    (each.first.ends_with("bias") ? biases : weights).push_back(each);
  }
  nn::AdamWOptions plain = options;
  plain.weight_decay = 0;
  plain.lr *= 2;
  return {{weights, options}, {biases, plain}};
}

}  // namespace peal::testing
