// SPDX-License-Identifier: Apache-2.0
// Linear: y = x weight^T + bias. Thread safety: as of Module.
#pragma once

#include <peal/nn/module.h>

namespace peal::nn {

class Linear : public Module {
 public:
  // weight [out, in] and bias [out], both uniform in +-1/sqrt(in), drawn in this order.
  Linear(std::int64_t in, std::int64_t out, bool with_bias = true);

  // x [..., in] -> [..., out].
  Tensor forward(const Tensor& x) override;

  Tensor weight, bias;  // bias is undefined where there is none
};

}  // namespace peal::nn
