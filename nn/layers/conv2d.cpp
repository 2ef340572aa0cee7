// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/layers/conv2d.h>
#include <peal/nn/layers/convolving.h>

namespace peal::nn {

Conv2d::Conv2d(std::int64_t in, std::int64_t out, Pair kernel, const Conv2dSettings& settings)
    : options_{settings.stride, settings.padding, settings.dilation, settings.groups},
      padding_mode_(settings.padding_mode) {
  weight = add_parameter("weight", first_conv_weight("Conv2d", in, out, {kernel[0], kernel[1]},
                                                     settings.groups, false));
  if (settings.bias) {
    bias = add_parameter("bias", init::uniform({out}, init::fan_in_bound(weight.shape())));
  }
}

Conv2d::Conv2d(const Tensor& own_weight, const Tensor& own_bias, const Conv2dOptions& options,
               PadMode mode)
    : options_(options), padding_mode_(mode) {
  weight = add_parameter("weight", own_weight);
  if (own_bias.defined()) bias = add_parameter("bias", own_bias);
}

Conv2d Conv2d::over(const Tensor& other_weight, const Tensor& other_bias) const {
  check_conv_shapes("Conv2d", weight, other_weight, other_bias);
  return {other_weight, other_bias, options_, padding_mode_};
}

Tensor Conv2d::forward(const Tensor& x) {
  if (padding_mode_ == PadMode::constant) return conv2d(x, weight, bias, options_);
  Conv2dOptions valid = options_;
  valid.padding = 0;
  return conv2d(padded_for("Conv2d", x, weight, padding_mode_, options_), weight, bias, valid);
}

}  // namespace peal::nn
