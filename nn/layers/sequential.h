// SPDX-License-Identifier: Apache-2.0
// Sequential: modules one after the other, named "0", "1", ...; more may be added with add() under
// names of their own. Thread safety: as of Module.
#pragma once

#include <peal/nn/module.h>

namespace peal::nn {

class Sequential : public Module {
 public:
  //   Sequential net{Flatten(), Linear(784, 128), ReLU(), Linear(128, 10)};
  template <std::derived_from<Module>... M>
  explicit Sequential(M... modules) {
    (push_back(std::move(modules)), ...);
  }

  // Under the next number.
  void push_back(Module module);
  Tensor forward(const Tensor& x) override;
};

}  // namespace peal::nn
