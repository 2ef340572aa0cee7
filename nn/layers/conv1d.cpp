// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/init.h>
#include <peal/nn/layers/conv1d.h>

namespace peal::nn {

Conv1d::Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel,
               const Conv1dSettings& settings)
    : options_{settings.stride, settings.padding, settings.dilation, settings.groups} {
  PEAL_CHECK(in > 0 && out > 0 && kernel > 0, "Conv1d: channels and kernel must be positive, got ",
             in, " -> ", out, ", kernel ", kernel);
  PEAL_CHECK(settings.groups > 0 && in % settings.groups == 0 && out % settings.groups == 0,
             "Conv1d: ", settings.groups, " groups do not divide ", in, " and ", out, " channels");
  const Shape shape{out, in / settings.groups, kernel};
  weight = add_parameter("weight", init::uniform(shape, init::fan_in_bound(shape)));
  if (settings.bias) bias = add_parameter("bias", init::uniform({out}, init::fan_in_bound(shape)));
}

}  // namespace peal::nn
