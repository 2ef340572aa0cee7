// SPDX-License-Identifier: Apache-2.0
// Conv3d: cross-correlation over volumes, as PyTorch's. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/convolution.h>
#include <peal/autograd/ops/pad.h>
#include <peal/nn/module.h>

namespace peal::nn {

using peal::Triple;

struct Conv3dSettings {
  Triple stride = 1;
  ConvPadding<Triple> padding = 0;  // or "same", "valid"
  Triple dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  PadMode padding_mode = PadMode::constant;  // zeros
};

class Conv3d : public Module {
 public:
  // weight [out, in / groups, kernel depth, height, width] and bias [out], both uniform in
  // +-1/sqrt(the size of an output's weight), drawn in this order.
  Conv3d(std::int64_t in, std::int64_t out, Triple kernel, const Conv3dSettings& settings = {});

  // x [N, in, D, H, W] or [in, D, H, W] -> [N, out, D', H', W'].
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  // Another of these settings, over a weight of this shape and a bias [out] or none.
  Conv3d over(const Tensor& other_weight, const Tensor& other_bias) const;

  Tensor weight, bias;  // bias is undefined where there is none

 private:
  Conv3d(const Tensor& own_weight, const Tensor& own_bias, const Conv3dOptions& options,
         PadMode mode);

  Conv3dOptions options_;
  PadMode padding_mode_;
};

}  // namespace peal::nn
