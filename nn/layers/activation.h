// SPDX-License-Identifier: Apache-2.0
// Activations as modules, for use in Sequential. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/loss.h>
#include <peal/autograd/ops/softmax.h>
#include <peal/nn/module.h>

namespace peal::nn {

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }
};

class GELU : public Module {
 public:
  explicit GELU(GeluApproximation approximation = GeluApproximation::none)
      : approximation_(approximation) {}
  Tensor forward(const Tensor& x) override { return gelu(x, approximation_); }
  std::string extra_repr() const override;

 private:
  GeluApproximation approximation_;
};

class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) override { return tanh(x); }
};

class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
};

class Softmax : public Module {
 public:
  explicit Softmax(int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return softmax(x, dim_); }
  std::string extra_repr() const override;

 private:
  int dim_;
};

class LogSoftmax : public Module {
 public:
  explicit LogSoftmax(int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return log_softmax(x, dim_); }
  std::string extra_repr() const override;

 private:
  int dim_;
};

class SiLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return silu(x); }
};

class Mish : public Module {
 public:
  Tensor forward(const Tensor& x) override { return mish(x); }
};

class LogSigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return logsigmoid(x); }
};

class Softsign : public Module {
 public:
  Tensor forward(const Tensor& x) override { return softsign(x); }
};

class Tanhshrink : public Module {
 public:
  Tensor forward(const Tensor& x) override { return tanhshrink(x); }
};

class Softplus : public Module {
 public:
  explicit Softplus(double beta = 1, double threshold = 20) : beta_(beta), threshold_(threshold) {}
  Tensor forward(const Tensor& x) override { return softplus(x, beta_, threshold_); }
  std::string extra_repr() const override;

 private:
  double beta_;
  double threshold_;
};

// Halves the size along `dim`.
class GLU : public Module {
 public:
  explicit GLU(int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return glu(x, dim_); }
  std::string extra_repr() const override;

 private:
  int dim_;
};

class Softmin : public Module {
 public:
  explicit Softmin(int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return softmin(x, dim_); }
  std::string extra_repr() const override;

 private:
  int dim_;
};

// Over the channels of [N, C, H, W] or [C, H, W], at each place.
class Softmax2d : public Module {
 public:
  Tensor forward(const Tensor& x) override {
    PEAL_CHECK(x.dim() == 3 || x.dim() == 4,
               "Softmax2d: expected [N, C, H, W] or [C, H, W], got shape ", x.shape());
    return softmax(x, -3);
  }
};

}  // namespace peal::nn
