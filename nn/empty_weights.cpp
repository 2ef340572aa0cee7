// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/empty_weights.h>

namespace peal::nn {

std::vector<std::string> empty_parameters(const Module& module) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : module.named_parameters()) {
    if (is_deferred(tensor)) names.push_back(name);
  }
  return names;
}

void materialize_module(const Module& module) {
  for (const Tensor& parameter : module.parameters()) materialize(parameter);
}

}  // namespace peal::nn
