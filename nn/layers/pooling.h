// SPDX-License-Identifier: Apache-2.0
// Pooling over sequences [N, C, L], images [N, C, H, W] and volumes [N, C, D, H, W], or one of
// these without N. Of max pools, forward_with_indices gives where the largest lie as well
// (PyTorch's return_indices). Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/adaptive_pool.h>
#include <peal/autograd/ops/fractional_pool.h>
#include <peal/autograd/ops/pool.h>
#include <peal/autograd/ops/unpool.h>
#include <peal/nn/module.h>

#include <utility>

namespace peal::nn {

using peal::Pair;

// The largest of each window.
class MaxPool1d : public Module {
 public:
  explicit MaxPool1d(std::int64_t kernel, PoolStride1d stride = {}, std::int64_t padding = 0,
                     std::int64_t dilation = 1, bool ceil_mode = false)
      : kernel_(kernel), options_{stride, padding, dilation, ceil_mode} {}
  Tensor forward(const Tensor& x) override { return max_pool1d(x, kernel_, options_); }
  Extreme forward_with_indices(const Tensor& x) const {
    return max_pool1d_with_indices(x, kernel_, options_);
  }
  std::string extra_repr() const override;

 private:
  std::int64_t kernel_;
  MaxPool1dOptions options_;
};

class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Pair kernel, PoolStride stride = {}, Pair padding = 0, Pair dilation = 1,
                     bool ceil_mode = false)
      : kernel_(kernel), options_{stride, padding, dilation, ceil_mode} {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, kernel_, options_); }
  Extreme forward_with_indices(const Tensor& x) const {
    return max_pool2d_with_indices(x, kernel_, options_);
  }
  std::string extra_repr() const override;

 private:
  Pair kernel_;
  MaxPool2dOptions options_;
};

class MaxPool3d : public Module {
 public:
  explicit MaxPool3d(Triple kernel, PoolStride3d stride = {}, Triple padding = 0,
                     Triple dilation = 1, bool ceil_mode = false)
      : kernel_(kernel), options_{stride, padding, dilation, ceil_mode} {}
  Tensor forward(const Tensor& x) override { return max_pool3d(x, kernel_, options_); }
  Extreme forward_with_indices(const Tensor& x) const {
    return max_pool3d_with_indices(x, kernel_, options_);
  }
  std::string extra_repr() const override;

 private:
  Triple kernel_;
  MaxPool3dOptions options_;
};

// The mean of each window.
class AvgPool1d : public Module {
 public:
  explicit AvgPool1d(std::int64_t kernel, PoolStride1d stride = {}, std::int64_t padding = 0,
                     bool ceil_mode = false, bool count_include_pad = true)
      : kernel_(kernel), options_{stride, padding, ceil_mode, count_include_pad} {}
  Tensor forward(const Tensor& x) override { return avg_pool1d(x, kernel_, options_); }
  std::string extra_repr() const override;

 private:
  std::int64_t kernel_;
  AvgPool1dOptions options_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Pair kernel, PoolStride stride = {}, Pair padding = 0, bool ceil_mode = false,
                     bool count_include_pad = true,
                     std::optional<std::int64_t> divisor_override = {})
      : kernel_(kernel),
        options_{stride, padding, ceil_mode, count_include_pad, divisor_override} {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, kernel_, options_); }
  std::string extra_repr() const override;

 private:
  Pair kernel_;
  AvgPool2dOptions options_;
};

class AvgPool3d : public Module {
 public:
  explicit AvgPool3d(Triple kernel, PoolStride3d stride = {}, Triple padding = 0,
                     bool ceil_mode = false, bool count_include_pad = true,
                     std::optional<std::int64_t> divisor_override = {})
      : kernel_(kernel),
        options_{stride, padding, ceil_mode, count_include_pad, divisor_override} {}
  Tensor forward(const Tensor& x) override { return avg_pool3d(x, kernel_, options_); }
  std::string extra_repr() const override;

 private:
  Triple kernel_;
  AvgPool3dOptions options_;
};

// The largest of windows at random places, by the same options in evaluation, too.
class FractionalMaxPool2d : public Module {
 public:
  FractionalMaxPool2d(Pair kernel, FractionalMaxPool2dOptions options)
      : kernel_(kernel), options_(std::move(options)) {}
  Tensor forward(const Tensor& x) override { return fractional_max_pool2d(x, kernel_, options_); }
  Extreme forward_with_indices(const Tensor& x) const {
    return fractional_max_pool2d_with_indices(x, kernel_, options_);
  }

 private:
  Pair kernel_;
  FractionalMaxPool2dOptions options_;
};

// The p-th root of the sum of p-th powers of each window (lp_pool1d).
class LPPool1d : public Module {
 public:
  explicit LPPool1d(double norm_type, std::int64_t kernel, PoolStride1d stride = {},
                    bool ceil_mode = false)
      : norm_type_(norm_type), kernel_(kernel), stride_(stride), ceil_mode_(ceil_mode) {}
  Tensor forward(const Tensor& x) override {
    return lp_pool1d(x, norm_type_, kernel_, stride_, ceil_mode_);
  }
  std::string extra_repr() const override;

 private:
  double norm_type_;
  std::int64_t kernel_;
  PoolStride1d stride_;
  bool ceil_mode_;
};

class LPPool2d : public Module {
 public:
  explicit LPPool2d(double norm_type, Pair kernel, PoolStride stride = {}, bool ceil_mode = false)
      : norm_type_(norm_type), kernel_(kernel), stride_(stride), ceil_mode_(ceil_mode) {}
  Tensor forward(const Tensor& x) override {
    return lp_pool2d(x, norm_type_, kernel_, stride_, ceil_mode_);
  }
  std::string extra_repr() const override;

 private:
  double norm_type_;
  Pair kernel_;
  PoolStride stride_;
  bool ceil_mode_;
};

class LPPool3d : public Module {
 public:
  explicit LPPool3d(double norm_type, Triple kernel, PoolStride3d stride = {},
                    bool ceil_mode = false)
      : norm_type_(norm_type), kernel_(kernel), stride_(stride), ceil_mode_(ceil_mode) {}
  Tensor forward(const Tensor& x) override {
    return lp_pool3d(x, norm_type_, kernel_, stride_, ceil_mode_);
  }
  std::string extra_repr() const override;

 private:
  double norm_type_;
  Triple kernel_;
  PoolStride3d stride_;
  bool ceil_mode_;
};

// To [N, C, size...], each the mean or the largest of its share.
class AdaptiveAvgPool1d : public Module {
 public:
  explicit AdaptiveAvgPool1d(std::int64_t size) : size_(size) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool1d(x, size_); }
  std::string extra_repr() const override;

 private:
  std::int64_t size_;
};

class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Pair size) : size_(size) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, size_); }
  std::string extra_repr() const override;

 private:
  Pair size_;
};

class AdaptiveAvgPool3d : public Module {
 public:
  explicit AdaptiveAvgPool3d(Triple size) : size_(size) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool3d(x, size_); }
  std::string extra_repr() const override;

 private:
  Triple size_;
};

class AdaptiveMaxPool1d : public Module {
 public:
  explicit AdaptiveMaxPool1d(std::int64_t size) : size_(size) {}
  Tensor forward(const Tensor& x) override { return adaptive_max_pool1d(x, size_); }
  Extreme forward_with_indices(const Tensor& x) const {
    return adaptive_max_pool1d_with_indices(x, size_);
  }
  std::string extra_repr() const override;

 private:
  std::int64_t size_;
};

class AdaptiveMaxPool2d : public Module {
 public:
  explicit AdaptiveMaxPool2d(Pair size) : size_(size) {}
  Tensor forward(const Tensor& x) override { return adaptive_max_pool2d(x, size_); }
  Extreme forward_with_indices(const Tensor& x) const {
    return adaptive_max_pool2d_with_indices(x, size_);
  }
  std::string extra_repr() const override;

 private:
  Pair size_;
};

class AdaptiveMaxPool3d : public Module {
 public:
  explicit AdaptiveMaxPool3d(Triple size) : size_(size) {}
  Tensor forward(const Tensor& x) override { return adaptive_max_pool3d(x, size_); }
  Extreme forward_with_indices(const Tensor& x) const {
    return adaptive_max_pool3d_with_indices(x, size_);
  }
  std::string extra_repr() const override;

 private:
  Triple size_;
};

// x and the indices of a max pool of these windows -> the largest where they lay, zeros elsewhere.
class MaxUnpool1d : public Module {
 public:
  explicit MaxUnpool1d(std::int64_t kernel, PoolStride1d stride = {}, std::int64_t padding = 0)
      : kernel_(kernel), options_{stride, padding, {}} {}
  Tensor operator()(const Tensor& x, const Tensor& indices) {
    return call(&MaxUnpool1d::unpool, x, indices);
  }
  Tensor unpool(const Tensor& x, const Tensor& indices) {
    return max_unpool1d(x, indices, kernel_, options_);
  }
  // To this size behind the channels, of those that the pool gives the same number of windows for.
  Tensor unpool_to(const Tensor& x, const Tensor& indices, Single size) {
    return max_unpool1d(x, indices, kernel_, {options_.stride, options_.padding, size});
  }
  std::string extra_repr() const override;

 private:
  std::int64_t kernel_;
  MaxUnpool1dOptions options_;
};

class MaxUnpool2d : public Module {
 public:
  explicit MaxUnpool2d(Pair kernel, PoolStride stride = {}, Pair padding = 0)
      : kernel_(kernel), options_{stride, padding, {}} {}
  Tensor operator()(const Tensor& x, const Tensor& indices) {
    return call(&MaxUnpool2d::unpool, x, indices);
  }
  Tensor unpool(const Tensor& x, const Tensor& indices) {
    return max_unpool2d(x, indices, kernel_, options_);
  }
  Tensor unpool_to(const Tensor& x, const Tensor& indices, Pair size) {
    return max_unpool2d(x, indices, kernel_, {options_.stride, options_.padding, size});
  }
  std::string extra_repr() const override;

 private:
  Pair kernel_;
  MaxUnpool2dOptions options_;
};

class MaxUnpool3d : public Module {
 public:
  explicit MaxUnpool3d(Triple kernel, PoolStride3d stride = {}, Triple padding = 0)
      : kernel_(kernel), options_{stride, padding, {}} {}
  Tensor operator()(const Tensor& x, const Tensor& indices) {
    return call(&MaxUnpool3d::unpool, x, indices);
  }
  Tensor unpool(const Tensor& x, const Tensor& indices) {
    return max_unpool3d(x, indices, kernel_, options_);
  }
  Tensor unpool_to(const Tensor& x, const Tensor& indices, Triple size) {
    return max_unpool3d(x, indices, kernel_, {options_.stride, options_.padding, size});
  }
  std::string extra_repr() const override;

 private:
  Triple kernel_;
  MaxUnpool3dOptions options_;
};

}  // namespace peal::nn
