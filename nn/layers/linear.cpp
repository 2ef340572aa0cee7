// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/matmul.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/linear.h>

namespace peal::nn {

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias) {
  PEAL_CHECK(in > 0 && out > 0, "Linear: sizes must be positive, got ", in, " and ", out);
  weight = add_parameter("weight", init::uniform({out, in}, init::fan_in_bound({out, in})));
  if (with_bias) bias = add_parameter("bias", init::uniform({out}, init::fan_in_bound({out, in})));
}

Linear::Linear(const Tensor& shared_weight, const Tensor& shared_bias) {
  PEAL_CHECK(shared_weight.dim() == 2, "Linear: expected a weight [out, in], got shape ",
             shared_weight.shape());
  PEAL_CHECK(!shared_bias.defined() || shared_bias.shape() == Shape{shared_weight.size(0)},
             "Linear: expected a bias [", shared_weight.size(0), "], got shape ",
             shared_bias.shape());
  weight = add_parameter("weight", shared_weight);
  if (shared_bias.defined()) bias = add_parameter("bias", shared_bias);
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

}  // namespace peal::nn
