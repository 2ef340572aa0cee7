// SPDX-License-Identifier: Apache-2.0
// Conv1d: cross-correlation over sequences, as PyTorch's. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/convolution.h>
#include <peal/autograd/ops/pad.h>
#include <peal/nn/module.h>

namespace peal::nn {

struct Conv1dSettings {
  std::int64_t stride = 1;
  ConvPadding<Single> padding = 0;  // or "same", "valid"
  std::int64_t dilation = 1, groups = 1;
  bool bias = true;
  PadMode padding_mode = PadMode::constant;  // zeros
};

class Conv1d : public Module {
 public:
  // weight [out, in / groups, kernel] and bias [out], both uniform in +-1/sqrt(in / groups *
  // kernel), drawn in this order.
  Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel,
         const Conv1dSettings& settings = {});

  // x [N, in, L] or [in, L] -> [N, out, L'] (sizes: autograd/ops/convolution.h).
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  // Another of these settings, over a weight of this shape and a bias [out] or none.
  Conv1d over(const Tensor& other_weight, const Tensor& other_bias) const;

  Tensor weight, bias;  // bias is undefined where there is none

 private:
  Conv1d(const Tensor& own_weight, const Tensor& own_bias, const Conv1dOptions& options,
         PadMode mode);

  Conv1dOptions options_;
  PadMode padding_mode_;
};

}  // namespace peal::nn
