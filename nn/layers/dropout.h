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
    constexpr auto op = dims == 1 ? dropout1d : dims == 2 ? dropout2d : dropout3d;
    return op(x, p(), training());
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

// Whole channels of x [N, C, ...].
class FeatureAlphaDropout : public Dropout {
 public:
  using Dropout::Dropout;
  Tensor forward(const Tensor& x) override { return feature_alpha_dropout(x, p(), training()); }
};

}  // namespace peal::nn
