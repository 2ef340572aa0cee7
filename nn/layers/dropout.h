// SPDX-License-Identifier: Apache-2.0
// Dropout: while training, zeroes each element with probability p and scales the others by
// 1 / (1 - p); in evaluation the identity. Its variants are in autograd/ops/dropout.h. Thread
// safety: as of Module.
#pragma once

#include <peal/autograd/ops/dropout.h>
#include <peal/nn/module.h>

namespace peal::nn {

class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : p_(p) {
    PEAL_CHECK(p >= 0 && p <= 1, "Dropout: the probability must be in [0, 1], got ", p);
  }

  Tensor forward(const Tensor& x) override { return dropout(x, p_, training()); }
  std::string extra_repr() const override;
  double p() const { return p_; }

 private:
  double p_;
};

// Whole channels: of x [N, C, L], [N, C, H, W] and [N, C, D, H, W].
template <int dims>
class FeatureDropout : public Dropout {
 public:
  using Dropout::Dropout;

  Tensor forward(const Tensor& x) override {
    PEAL_CHECK(x.dim() == dims + 2, "Dropout", dims, "d: expected [N, C] and ", dims,
               " dimensions more, got shape ", x.shape());
    return feature_dropout(x, p(), training());
  }
  std::string repr_name() const override { return concat("Dropout", dims, "d"); }
};
using Dropout1d = FeatureDropout<1>;
using Dropout2d = FeatureDropout<2>;
using Dropout3d = FeatureDropout<3>;

class AlphaDropout : public Dropout {
 public:
  using Dropout::Dropout;
  Tensor forward(const Tensor& x) override { return alpha_dropout(x, p(), training()); }
};

}  // namespace peal::nn
