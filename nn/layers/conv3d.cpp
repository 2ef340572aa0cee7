// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/layers/conv3d.h>
#include <peal/nn/layers/convolving.h>

namespace peal::nn {

Conv3d::Conv3d(std::int64_t in, std::int64_t out, Triple kernel, const Conv3dSettings& settings)
    : options_{settings.stride, settings.padding, settings.dilation, settings.groups},
      padding_mode_(settings.padding_mode) {
  weight = add_parameter("weight",
                         first_conv_weight("Conv3d", in, out, {kernel[0], kernel[1], kernel[2]},
                                           settings.groups, false));
  if (settings.bias) {
    bias = add_parameter("bias", init::uniform({out}, init::fan_in_bound(weight.shape())));
  }
}

Conv3d::Conv3d(const Tensor& own_weight, const Tensor& own_bias, const Conv3dOptions& options,
               PadMode mode)
    : options_(options), padding_mode_(mode) {
  weight = add_parameter("weight", own_weight);
  if (own_bias.defined()) bias = add_parameter("bias", own_bias);
}

Conv3d Conv3d::over(const Tensor& other_weight, const Tensor& other_bias) const {
  check_conv_shapes("Conv3d", weight, other_weight, other_bias);
  return {other_weight, other_bias, options_, padding_mode_};
}

Tensor Conv3d::forward(const Tensor& x) {
  if (padding_mode_ == PadMode::constant) return conv3d(x, weight, bias, options_);
  Conv3dOptions valid = options_;
  valid.padding = 0;
  return conv3d(padded_for("Conv3d", x, weight, padding_mode_, options_), weight, bias, valid);
}

}  // namespace peal::nn
