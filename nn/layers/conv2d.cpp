// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/init.h>
#include <peal/nn/layers/conv2d.h>

namespace peal::nn {

Conv2d::Conv2d(std::int64_t in, std::int64_t out, Pair kernel, const Conv2dSettings& settings)
    : options_{settings.stride, settings.padding, settings.dilation, settings.groups} {
  PEAL_CHECK(in > 0 && out > 0 && kernel.height > 0 && kernel.width > 0,
             "Conv2d: channels and kernel must be positive, got ", in, " -> ", out, ", kernel ",
             kernel.height, " x ", kernel.width);
  PEAL_CHECK(settings.groups > 0 && in % settings.groups == 0 && out % settings.groups == 0,
             "Conv2d: ", settings.groups, " groups do not divide ", in, " and ", out, " channels");
  const Shape shape{out, in / settings.groups, kernel.height, kernel.width};
  weight = add_parameter("weight", init::uniform(shape, init::fan_in_bound(shape)));
  if (settings.bias) bias = add_parameter("bias", init::uniform({out}, init::fan_in_bound(shape)));
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight, bias, options_); }

}  // namespace peal::nn
