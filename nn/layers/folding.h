// SPDX-License-Identifier: Apache-2.0
// Windows of images as columns, and back, as PyTorch's. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/unfold.h>
#include <peal/nn/module.h>

namespace peal::nn {

class Unfold : public Module {
 public:
  explicit Unfold(Pair kernel, const UnfoldOptions& options = {})
      : kernel_(kernel), options_(options) {}
  // x [N, C, H, W] or [C, H, W] -> [N, C kH kW, L].
  Tensor forward(const Tensor& x) override { return unfold(x, kernel_, options_); }
  std::string extra_repr() const override;

 private:
  Pair kernel_;
  UnfoldOptions options_;
};

class Fold : public Module {
 public:
  Fold(Pair output_size, Pair kernel, const UnfoldOptions& options = {})
      : size_(output_size), kernel_(kernel), options_(options) {}
  // x [N, C kH kW, L] or [C kH kW, L] -> [N, C, H, W] of the size.
  Tensor forward(const Tensor& x) override { return fold(x, size_, kernel_, options_); }
  std::string extra_repr() const override;

 private:
  Pair size_, kernel_;
  UnfoldOptions options_;
};

}  // namespace peal::nn
