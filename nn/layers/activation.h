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

}  // namespace peal::nn
