// SPDX-License-Identifier: Apache-2.0
// Dropout: while training, zeroes each element with probability p and scales the others by
// 1 / (1 - p); in evaluation the identity. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/dropout.h>
#include <peal/nn/module.h>

namespace peal::nn {

class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : p_(p) {
    PEAL_CHECK(p >= 0 && p <= 1, "Dropout: the probability must be in [0, 1], got ", p);
  }

  Tensor forward(const Tensor& x) override { return dropout(x, p_, training()); }

 private:
  double p_;
};

}  // namespace peal::nn
