// SPDX-License-Identifier: Apache-2.0
// Upsample: other sizes, as PyTorch's. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/interpolate.h>
#include <peal/nn/module.h>

namespace peal::nn {

//   Upsample({.scale_factor = 2, .mode = InterpolateMode::bilinear})
class Upsample : public Module {
 public:
  explicit Upsample(const InterpolateOptions& options) : options_(options) {}
  // x [N, C, ...] -> [N, C, ...] (autograd/ops/interpolate.h).
  Tensor forward(const Tensor& x) override { return interpolate(x, options_); }
  std::string extra_repr() const override;

 private:
  InterpolateOptions options_;
};

}  // namespace peal::nn
