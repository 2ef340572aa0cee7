// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/factory.h>
#include <peal/nn/init.h>

#include <cmath>

namespace peal::nn::init {

std::int64_t fan_in(const Shape& weight) {
  PEAL_CHECK(weight.dim() >= 2 && weight[0] > 0,
             "fan_in: a weight has at least two dimensions [out, in, ...], got ", weight);
  return weight.numel() / weight[0];
}

double fan_in_bound(const Shape& weight) {
  return 1.0 / std::sqrt(static_cast<double>(fan_in(weight)));
}

Tensor uniform(const Shape& shape, double bound) { return peal::uniform(shape, -bound, bound); }

}  // namespace peal::nn::init
