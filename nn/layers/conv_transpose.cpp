// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/layers/conv_transpose.h>
#include <peal/nn/layers/convolving.h>

namespace peal::nn {
namespace {

// The output_padding along the d-th dimension that makes the result `wanted` long.
std::int64_t output_padding_for(std::string_view layer, const Tensor& x, const Tensor& weight,
                                int d, std::int64_t stride, std::int64_t padding,
                                std::int64_t dilation, std::int64_t wanted) {
  const int dims = weight.dim() - 2;
  PEAL_CHECK(x.dim() == dims + 1 || x.dim() == dims + 2, layer, ": expected [N, C] or [C] and ",
             dims, " dimensions more, got shape ", x.shape());
  const std::int64_t least =
      (x.size(d - dims) - 1) * stride - 2 * padding + dilation * (weight.size(2 + d) - 1) + 1;
  PEAL_CHECK(wanted >= least && wanted < least + stride, layer, ": expected a size of ", least,
             " to ", least + stride - 1, " in dimension ", d - dims, " for input ", x.shape(),
             ", got ", wanted);
  return wanted - least;
}

}  // namespace

ConvTranspose1d::ConvTranspose1d(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                 const ConvTranspose1dSettings& s)
    : options_{s.stride, s.padding, s.output_padding, s.groups, s.dilation} {
  weight = add_parameter("weight",
                         first_conv_weight("ConvTranspose1d", in, out, {kernel}, s.groups, true));
  if (s.bias) {
    bias = add_parameter("bias", init::uniform({out}, init::fan_in_bound(weight.shape())));
  }
}

// Between the hooks, of which one may compute the weight (nn/computed_parameter.h).
Tensor ConvTranspose1d::forward_to(const Tensor& input, std::int64_t length) {
  return call(
      [&](const Tensor& x) {
        ConvTranspose1dOptions o = options_;
        o.output_padding = output_padding_for("ConvTranspose1d", x, weight, 0, o.stride, o.padding,
                                              o.dilation, length);
        return conv_transpose1d(x, weight, bias, o);
      },
      input);
}

ConvTranspose2d::ConvTranspose2d(std::int64_t in, std::int64_t out, Pair kernel,
                                 const ConvTranspose2dSettings& s)
    : options_{s.stride, s.padding, s.output_padding, s.groups, s.dilation} {
  weight = add_parameter("weight", first_conv_weight("ConvTranspose2d", in, out,
                                                     {kernel[0], kernel[1]}, s.groups, true));
  if (s.bias) {
    bias = add_parameter("bias", init::uniform({out}, init::fan_in_bound(weight.shape())));
  }
}

Tensor ConvTranspose2d::forward_to(const Tensor& input, Pair size) {
  return call(
      [&](const Tensor& x) {
        ConvTranspose2dOptions o = options_;
        const auto more = [&](int d) {
          const auto at = static_cast<std::size_t>(d);
          return output_padding_for("ConvTranspose2d", x, weight, d, o.stride[at], o.padding[at],
                                    o.dilation[at], size[at]);
        };
        o.output_padding = {more(0), more(1)};
        return conv_transpose2d(x, weight, bias, o);
      },
      input);
}

ConvTranspose3d::ConvTranspose3d(std::int64_t in, std::int64_t out, Triple kernel,
                                 const ConvTranspose3dSettings& s)
    : options_{s.stride, s.padding, s.output_padding, s.groups, s.dilation} {
  weight =
      add_parameter("weight", first_conv_weight("ConvTranspose3d", in, out,
                                                {kernel[0], kernel[1], kernel[2]}, s.groups, true));
  if (s.bias) {
    bias = add_parameter("bias", init::uniform({out}, init::fan_in_bound(weight.shape())));
  }
}

Tensor ConvTranspose3d::forward_to(const Tensor& input, Triple size) {
  return call(
      [&](const Tensor& x) {
        ConvTranspose3dOptions o = options_;
        const auto more = [&](int d) {
          const auto at = static_cast<std::size_t>(d);
          return output_padding_for("ConvTranspose3d", x, weight, d, o.stride[at], o.padding[at],
                                    o.dilation[at], size[at]);
        };
        o.output_padding = {more(0), more(1), more(2)};
        return conv_transpose3d(x, weight, bias, o);
      },
      input);
}

}  // namespace peal::nn
