// SPDX-License-Identifier: Apache-2.0
// Pooling over images. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/pool.h>
#include <peal/nn/layers/pair.h>
#include <peal/nn/module.h>

namespace peal::nn {

// The largest of each window; stride 0 means the kernel's size.
class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Pair kernel, Pair stride = 0, Pair padding = 0, Pair dilation = 1,
                     bool ceil_mode = false)
      : kernel_(kernel.array()),
        options_{stride.array(), padding.array(), dilation.array(), ceil_mode} {}

  // x [N, C, H, W] -> [N, C, H', W'].
  Tensor forward(const Tensor& x) override { return max_pool2d(x, kernel_, options_); }

 private:
  std::array<std::int64_t, 2> kernel_;
  MaxPool2dOptions options_;
};

// The mean of each window.
class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Pair kernel, Pair stride = 0, Pair padding = 0, bool count_include_pad = true)
      : kernel_(kernel.array()), options_{stride.array(), padding.array(), count_include_pad} {}

  Tensor forward(const Tensor& x) override { return avg_pool2d(x, kernel_, options_); }

 private:
  std::array<std::int64_t, 2> kernel_;
  AvgPool2dOptions options_;
};

// To [N, C, size].
class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Pair size) : size_(size.array()) {}

  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, size_); }

 private:
  std::array<std::int64_t, 2> size_;
};

}  // namespace peal::nn
