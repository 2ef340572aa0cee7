// SPDX-License-Identifier: Apache-2.0
// Flatten: dimensions start_dim to end_dim become one. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/shape.h>
#include <peal/nn/module.h>

namespace peal::nn {

class Flatten : public Module {
 public:
  explicit Flatten(int start_dim = 1, int end_dim = -1)
      : start_dim_(start_dim), end_dim_(end_dim) {}

  // [N, ...] -> [N, product of the others], unless the two say otherwise.
  Tensor forward(const Tensor& x) override { return flatten(x, start_dim_, end_dim_); }
  std::string extra_repr() const override;

 private:
  int start_dim_, end_dim_;
};

}  // namespace peal::nn
