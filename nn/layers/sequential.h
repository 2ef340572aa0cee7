// SPDX-License-Identifier: Apache-2.0
// Sequential: modules one after the other, named "0", "1", ...; more may be added with add() under
// names of their own. Thread safety: as of Module.
#pragma once

#include <peal/nn/layers/containers.h>

namespace peal::nn {

// Also by name: Sequential net({{"fc", Linear(3, 2)}, {"act", ReLU()}}).
class Sequential : public ModuleSeries {
 public:
  //   Sequential net{Flatten(), Linear(784, 128), ReLU(), Linear(128, 10)};
  template <std::derived_from<Module>... M>
  explicit Sequential(M... modules) {
    (push_back(std::move(modules)), ...);
  }

  explicit Sequential(const std::vector<std::pair<std::string, Module>>& modules) {
    for (const auto& [name, module] : modules) add(name, module);
  }
  Tensor forward(const Tensor& x) override;
};

}  // namespace peal::nn
