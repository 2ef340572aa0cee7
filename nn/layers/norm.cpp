// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/factory.h>
#include <peal/nn/layers/norm.h>

#include <utility>
#include <vector>

namespace peal::nn {

LayerNorm::LayerNorm(const Shape& shape, const LayerNormSettings& settings)
    : shape_(shape), eps_(settings.eps) {
  PEAL_CHECK(shape.dim() > 0 && shape.numel() > 0, "LayerNorm: sizes must be positive, got ",
             shape);
  if (!settings.affine) return;
  weight = add_parameter("weight", ones(shape));
  if (settings.bias) bias = add_parameter("bias", zeros(shape));
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, shape_, weight, bias, eps_); }

BatchNorm::BatchNorm(std::int64_t channels, const BatchNormSettings& settings)
    : channels_(channels), settings_(settings) {
  PEAL_CHECK(channels > 0, "BatchNorm: channels must be positive, got ", channels);
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

BatchNorm::BatchNorm(const Sharing& sharing)
    : channels_(sharing.other.channels_),
      settings_(sharing.other.settings_),
      counted_anew_(sharing.other.counted_anew_) {
  const BatchNorm& other = sharing.other;
  const auto share = [&](const char* name, const Tensor& tensor) {
    const bool trained = tensor.requires_grad();
    return add_parameter(name, tensor).set_requires_grad(trained);
  };
  if (other.weight.defined()) weight = share("weight", other.weight);
  if (other.bias.defined()) bias = share("bias", other.bias);
  if (other.running_mean.defined()) {
    running_mean = add_buffer("running_mean", other.running_mean);
    running_var = add_buffer("running_var", other.running_var);
    num_batches_tracked = add_buffer("num_batches_tracked", other.num_batches_tracked);
  }
  train(other.training());
}

void BatchNorm::reset_running_stats() {
  if (!running_mean.defined()) return;
  running_mean.zero_();
  fill_(running_var, 1);
  num_batches_tracked.zero_();
}

void update_bn(Module& model, const std::function<void()>& forward) {
  struct Before {
    std::vector<std::pair<Module, bool>> modes;  // parents before children
    std::vector<std::shared_ptr<bool>> norms;

    explicit Before(Module& of) {
      for (const Module& module : of.modules()) modes.emplace_back(module, module.training());
      of.apply([&](Module& module) {
        auto* const norm = module.as<BatchNorm>();
        if (norm == nullptr || !norm->running_mean.defined()) return;
        norms.push_back(norm->counted_anew_);
        *norm->counted_anew_ = true;
        norm->reset_running_stats();
      });
    }
    ~Before() {
      for (auto& [module, mode] : modes) module.train(mode);
      for (const auto& counted_anew : norms) *counted_anew = false;
    }
    Before(const Before&) = delete;
    Before& operator=(const Before&) = delete;
  };
  const Before before(model);
  if (before.norms.empty()) return;
  const NoGrad guard;
  model.train();
  forward();
}

Tensor BatchNorm::normalised(const Tensor& x) {
  const bool on = training();
  const bool averages = !settings_.momentum || *counted_anew_;
  double momentum = settings_.momentum.value_or(0);
  if (on && averages && num_batches_tracked.defined()) {
    momentum = 1 / static_cast<double>(num_batches_tracked.item<std::int64_t>() + 1);
  }
  const Tensor y = apply(x, {.training = on, .momentum = momentum, .eps = settings_.eps});
  if (on && num_batches_tracked.defined() && !recomputing()) {
    add_(num_batches_tracked, ones({}, DType::i64, num_batches_tracked.device()));
  }
  return y;
}

Tensor BatchNorm::apply(const Tensor& x, const BatchNormOptions& options) {
  return batch_norm(x, running_mean, running_var, weight, bias, options);
}

Tensor BatchNorm1d::forward(const Tensor& x) {
  PEAL_CHECK(x.dim() == 2 || x.dim() == 3, "BatchNorm1d: expected [N, C] or [N, C, L], got shape ",
             x.shape());
  return normalised(x);
}

Tensor BatchNorm2d::forward(const Tensor& x) {
  PEAL_CHECK(x.dim() == 4, "BatchNorm2d: expected [N, C, H, W], got shape ", x.shape());
  return normalised(x);
}

Tensor BatchNorm3d::forward(const Tensor& x) {
  PEAL_CHECK(x.dim() == 5, "BatchNorm3d: expected [N, C, D, H, W], got shape ", x.shape());
  return normalised(x);
}

}  // namespace peal::nn
