// SPDX-License-Identifier: Apache-2.0
// Conv2d: cross-correlation over images, as PyTorch's. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/convolution.h>
#include <peal/autograd/ops/pad.h>
#include <peal/nn/module.h>

namespace peal::nn {

using peal::Pair;

struct Conv2dSettings {
  Pair stride = 1;
  ConvPadding<Pair> padding = 0;  // or "same", "valid"
  Pair dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  PadMode padding_mode = PadMode::constant;  // zeros
};

class Conv2d : public Module {
 public:
  // weight [out, in / groups, kernel height, kernel width] and bias [out], both uniform in
  // +-1/sqrt(in / groups * kernel height * kernel width), drawn in this order.
  //   Conv2d(64, 128, 3, {.stride = 2, .padding = 1, .bias = false})
  Conv2d(std::int64_t in, std::int64_t out, Pair kernel, const Conv2dSettings& settings = {});

  // x [N, in, H, W] or [in, H, W] -> [N, out, H', W'] (sizes: autograd/ops/convolution.h).
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  // Another of these settings, over a weight of this shape and a bias [out] or none.
  Conv2d over(const Tensor& other_weight, const Tensor& other_bias) const;

  Tensor weight, bias;  // bias is undefined where there is none

 private:
  Conv2d(const Tensor& own_weight, const Tensor& own_bias, const Conv2dOptions& options,
         PadMode mode);

  Conv2dOptions options_;
  PadMode padding_mode_;
};

}  // namespace peal::nn
