// SPDX-License-Identifier: Apache-2.0
// What convolution layers have in common: their checks and first weights, and padding by other
// values than zeros. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/pad.h>
#include <peal/nn/init.h>

#include <string_view>
#include <vector>

namespace peal::nn {

// A new weight [out, in, kernel...], where weights of a transposed convolution have in and out the
// other way round, and both count what a group has of the second.
inline Tensor first_conv_weight(std::string_view layer, std::int64_t in, std::int64_t out,
                                const std::vector<std::int64_t>& kernel, std::int64_t groups,
                                bool transposed) {
  bool positive = in > 0 && out > 0;
  for (const std::int64_t size : kernel) positive = positive && size > 0;
  PEAL_CHECK(positive, layer, ": channels and kernel must be positive, got ", in, " -> ", out,
             ", kernel ", kernel[0], kernel.size() > 1 ? concat(" x ", kernel[1]) : "",
             kernel.size() > 2 ? concat(" x ", kernel[2]) : "");
  PEAL_CHECK(groups > 0 && in % groups == 0 && out % groups == 0, layer, ": ", groups,
             " groups do not divide ", in, " and ", out, " channels");
  Shape shape = transposed ? Shape{in, out / groups} : Shape{out, in / groups};
  for (const std::int64_t size : kernel) shape.push_back(size);
  return init::uniform(shape, init::fan_in_bound(shape));
}

// Error where these are not of a layer that has this weight.
inline void check_conv_shapes(std::string_view layer, const Tensor& own, const Tensor& weight,
                              const Tensor& bias) {
  PEAL_CHECK(weight.shape() == own.shape(), layer, ": expected a weight of shape ", own.shape(),
             ", got ", weight.shape());
  PEAL_CHECK(!bias.defined() || bias.shape() == Shape{own.size(0)}, layer, ": expected a bias [",
             own.size(0), "], got shape ", bias.shape());
}

// x with what a convolution of `dims` dimensions pads by, in this mode; the convolution's own is
// "valid" then.
template <class Options>
Tensor padded_for(std::string_view layer, const Tensor& x, const Tensor& weight, PadMode mode,
                  const Options& options) {
  std::vector<std::int64_t> pads;
  const int dims = weight.dim() - 2;
  for (int d = dims - 1; d >= 0; --d) {
    const auto at = static_cast<std::size_t>(d);
    std::int64_t before = options.padding[at], after = before;
    if (options.padding.same()) {
      const auto along = [&](const auto& each) {
        if constexpr (requires { each[at]; }) {
          return each[at];
        } else {
          return each;
        }
      };
      PEAL_CHECK(along(options.stride) == 1, layer, ": a padding of \"same\" is for strides of 1");
      const std::int64_t all = along(options.dilation) * (weight.size(2 + d) - 1);
      before = all / 2;
      after = all - before;
    }
    pads.insert(pads.end(), {before, after});
  }
  return pad(x, pads, mode);
}

}  // namespace peal::nn
