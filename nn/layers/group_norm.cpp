// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/shape.h>
#include <peal/nn/layers/group_norm.h>
#include <peal/nn/python_text.h>

namespace peal::nn {

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, const GroupNormSettings& settings)
    : groups_(groups), channels_(channels), eps_(settings.eps) {
  PEAL_CHECK(groups > 0 && channels > 0 && channels % groups == 0, "GroupNorm: ", groups,
             " groups do not divide ", channels, " channels");
  if (!settings.affine) return;
  weight = add_parameter("weight", ones({channels}));
  if (settings.bias) bias = add_parameter("bias", zeros({channels}));
}

template <int dims>
InstanceNorm<dims>::InstanceNorm(std::int64_t channels, const InstanceNormSettings& settings)
    : channels_(channels), settings_(settings) {
  PEAL_CHECK(channels > 0, "InstanceNorm", dims, "d: channels must be positive, got ", channels);
  if (settings.affine) {
    weight = add_parameter("weight", ones({channels}));
    if (settings.bias) bias = add_parameter("bias", zeros({channels}));
  }
  if (settings.track) {
    running_mean = add_buffer("running_mean", zeros({channels}));
    running_var = add_buffer("running_var", ones({channels}));
    num_batches_tracked = add_buffer("num_batches_tracked", zeros({}, DType::i64));
  }
}

template <int dims>
std::string InstanceNorm<dims>::extra_repr() const {
  return concat(channels_, ", eps=", python_text(settings_.eps),
                ", momentum=", python_text(settings_.momentum),
                ", affine=", python_text(weight.defined()), ", bias=", python_text(bias.defined()),
                ", track_running_stats=", python_text(running_mean.defined()));
}

template <int dims>
Tensor InstanceNorm<dims>::forward(const Tensor& x) {
  const bool one = x.dim() == dims + 1;
  PEAL_CHECK((one || x.dim() == dims + 2) && x.size(one ? 0 : 1) == channels_, "InstanceNorm", dims,
             "d: expected [N, ", channels_, "] or [", channels_, "] and ", dims,
             " dimensions more, got shape ", x.shape());
  const Tensor y = instance_norm(one ? unsqueeze(x, 0) : x, running_mean, running_var, weight, bias,
                                 {.use_input_stats = training() || !settings_.track,
                                  .momentum = settings_.momentum,
                                  .eps = settings_.eps});
  return one ? squeeze(y, 0) : y;
}

template class InstanceNorm<1>;
template class InstanceNorm<2>;
template class InstanceNorm<3>;

RMSNorm::RMSNorm(const Shape& shape, const RMSNormSettings& settings)
    : shape_(shape), eps_(settings.eps) {
  PEAL_CHECK(shape.dim() > 0 && shape.numel() > 0, "RMSNorm: sizes must be positive, got ", shape);
  if (settings.affine) weight = add_parameter("weight", ones(shape));
}

}  // namespace peal::nn
