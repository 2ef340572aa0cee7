// SPDX-License-Identifier: Apache-2.0
// Normalisations within each sample (autograd/ops/group_norm.h has the formulas). Thread safety: as
// of Module.
#pragma once

#include <peal/autograd/ops/group_norm.h>
#include <peal/nn/module.h>

#include <optional>

namespace peal::nn {

struct GroupNormSettings {
  double eps = 1e-5;
  bool affine = true;  // with a weight of ones and a bias of zeros, both [channels]
  bool bias = true;    // false: with the weight alone
};

// x [N, C, ...].
class GroupNorm : public Module {
 public:
  GroupNorm(std::int64_t groups, std::int64_t channels, const GroupNormSettings& settings = {});
  Tensor forward(const Tensor& x) override { return group_norm(x, groups_, weight, bias, eps_); }
  std::string extra_repr() const override;

  Tensor weight, bias;  // undefined where there are none

 private:
  std::int64_t groups_, channels_;
  double eps_;
};

struct InstanceNormSettings {
  double eps = 1e-5, momentum = 0.1;
  bool affine = false;  // with a weight of ones and a bias of zeros, both [channels]
  // With running_mean and running_var, which evaluation takes, and num_batches_tracked, which is
  // there for its key alone, as in PyTorch.
  bool track = false;
  bool bias = true;  // false: an affine one has the weight alone
};

// What those below share: x [N, C, ...], or [C, ...] of one sample.
template <int dims>
class InstanceNorm : public Module {
 public:
  explicit InstanceNorm(std::int64_t channels, const InstanceNormSettings& settings = {});
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
  std::string repr_name() const override { return concat("InstanceNorm", dims, "d"); }

  Tensor weight, bias, running_mean, running_var, num_batches_tracked;

 private:
  std::int64_t channels_;
  InstanceNormSettings settings_;
};
extern template class InstanceNorm<1>;
extern template class InstanceNorm<2>;
extern template class InstanceNorm<3>;
using InstanceNorm1d = InstanceNorm<1>;
using InstanceNorm2d = InstanceNorm<2>;
using InstanceNorm3d = InstanceNorm<3>;

struct RMSNormSettings {
  std::optional<double> eps{};  // none: the machine's
  bool affine = true;           // with a weight of ones of the normalised shape
};

// Over the last dimensions, whose sizes are `shape`.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(const Shape& shape, const RMSNormSettings& settings = {});
  explicit RMSNorm(std::int64_t width, const RMSNormSettings& settings = {})
      : RMSNorm(Shape{width}, settings) {}
  Tensor forward(const Tensor& x) override { return rms_norm(x, shape_, weight, eps_); }
  std::string extra_repr() const override;

  Tensor weight;

 private:
  Shape shape_;
  std::optional<double> eps_;
};

// x [N, C, ...], over `size` channels.
class LocalResponseNorm : public Module {
 public:
  explicit LocalResponseNorm(std::int64_t size, const LocalResponseNormOptions& options = {})
      : size_(size), options_(options) {}
  Tensor forward(const Tensor& x) override { return local_response_norm(x, size_, options_); }
  std::string extra_repr() const override;

 private:
  std::int64_t size_;
  LocalResponseNormOptions options_;
};

}  // namespace peal::nn
