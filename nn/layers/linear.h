// SPDX-License-Identifier: Apache-2.0
// Linear: y = x weight^T + bias. Thread safety: as of Module.
#pragma once

#include <peal/nn/module.h>

namespace peal::nn {

class Linear : public Module {
 public:
  // weight [out, in] and bias [out], both uniform in +-1/sqrt(in), drawn in this order.
  Linear(std::int64_t in, std::int64_t out, bool with_bias = true);
  // Over tensors that there are, to share them with another module (tied weights), or to give them
  // values of one's own: weight [out, in], and bias [out] or undefined.
  explicit Linear(const Tensor& weight, const Tensor& bias = {});

  // x [..., in] -> [..., out].
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  Tensor weight, bias;  // bias is undefined where there is none
};

}  // namespace peal::nn
