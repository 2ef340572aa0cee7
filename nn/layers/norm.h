// SPDX-License-Identifier: Apache-2.0
// Normalisations (autograd/ops/norm.h has the formulas). Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/norm.h>
#include <peal/nn/module.h>

#include <functional>
#include <memory>
#include <optional>

namespace peal::nn {

struct LayerNormSettings {
  double eps = 1e-5;
  bool affine = true;  // with a weight of ones and a bias of zeros, both of the normalised shape
  bool bias = true;    // false: with the weight alone
};

// Over the last dimensions, whose sizes are `shape`.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const Shape& shape, const LayerNormSettings& settings = {});
  explicit LayerNorm(std::int64_t width, const LayerNormSettings& settings = {})
      : LayerNorm(Shape{width}, settings) {}

  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  Tensor weight, bias;  // undefined where there are none

 private:
  Shape shape_;
  double eps_;
};

struct BatchNormSettings {
  double eps = 1e-5;
  // The running statistics' share of the new; none: they are the average over all batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;  // with a weight of ones and a bias of zeros, both [channels]
  bool track = true;   // with running_mean, running_var and num_batches_tracked
  bool bias = true;    // false: with the weight alone
};

// What those below share: normalises by channel, with the batch's statistics while training and
// with the running ones in evaluation.
class BatchNorm : public Module {
 public:
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;
  double eps() const { return settings_.eps; }
  // Running statistics as of a new layer, where there are any.
  void reset_running_stats();
  std::string extra_repr() const override;

 protected:
  BatchNorm(std::int64_t channels, const BatchNormSettings& settings);
  // Of the same tensors, settings and mode.
  struct Sharing {
    const BatchNorm& other;
  };
  explicit BatchNorm(const Sharing& sharing);
  Tensor normalised(const Tensor& x);
  // The op that normalises.
  virtual Tensor apply(const Tensor& x, const BatchNormOptions& options);

 private:
  friend void update_bn(Module& model, const std::function<void()>& forward);

  std::int64_t channels_;
  BatchNormSettings settings_;
  // Of all handles: update_bn is at work, and statistics are averages whatever the momentum.
  std::shared_ptr<bool> counted_anew_ = std::make_shared<bool>(false);
};

// The running statistics of all batch norms below anew, the averages over the batches that
// `forward` calls the model with (PyTorch's swa_utils.update_bn). It trains meanwhile, without
// gradients; modes and momenta then are as before, also where `forward` throws. Without such a norm
// nothing is called. Ranks have those of their own batches: DDP's sync_buffers() makes them equal.
//   nn::update_bn(model, [&] { for (const auto& [x, y] : loader) model(x); });
void update_bn(Module& model, const std::function<void()>& forward);

// x [N, C] or [N, C, L].
class BatchNorm1d : public BatchNorm {
 public:
  explicit BatchNorm1d(std::int64_t channels, const BatchNormSettings& settings = {})
      : BatchNorm(channels, settings) {}
  Tensor forward(const Tensor& x) override;
};

// x [N, C, H, W].
class BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(std::int64_t channels, const BatchNormSettings& settings = {})
      : BatchNorm(channels, settings) {}
  Tensor forward(const Tensor& x) override;
};

// x [N, C, D, H, W].
class BatchNorm3d : public BatchNorm {
 public:
  explicit BatchNorm3d(std::int64_t channels, const BatchNormSettings& settings = {})
      : BatchNorm(channels, settings) {}
  Tensor forward(const Tensor& x) override;
};

}  // namespace peal::nn
