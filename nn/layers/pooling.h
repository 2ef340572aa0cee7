// SPDX-License-Identifier: Apache-2.0
// Pooling over images. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/pool.h>
#include <peal/nn/module.h>

namespace peal::nn {

using peal::Pair;

// The largest of each window.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Pair kernel, PoolStride stride = {}, Pair padding = 0, Pair dilation = 1,
                     bool ceil_mode = false)
      : kernel_(kernel), options_{stride, padding, dilation, ceil_mode} {}

  // x [N, C, H, W] -> [N, C, H', W'].
  Tensor forward(const Tensor& x) override { return max_pool2d(x, kernel_, options_); }
  std::string extra_repr() const override;

 private:
  Pair kernel_;
  MaxPool2dOptions options_;
};

// The mean of each window.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Pair kernel, PoolStride stride = {}, Pair padding = 0,
                     bool count_include_pad = true)
      : kernel_(kernel), options_{stride, padding, count_include_pad} {}

  Tensor forward(const Tensor& x) override { return avg_pool2d(x, kernel_, options_); }
  std::string extra_repr() const override;

 private:
  Pair kernel_;
  AvgPool2dOptions options_;
};

// To [N, C, size].
class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Pair size) : size_(size) {}

  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, size_); }
  std::string extra_repr() const override;

 private:
  Pair size_;
};

}  // namespace peal::nn
