// SPDX-License-Identifier: Apache-2.0
// Rectifiers and what is made of straight lines, as modules: what autograd/ops/activation.h says of
// the ops. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/activation.h>
#include <peal/autograd/ops/factory.h>
#include <peal/nn/module.h>

namespace peal::nn {

class ReLU6 : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu6(x); }
};

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double negative_slope = 0.01) : negative_slope_(negative_slope) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, negative_slope_); }
  std::string extra_repr() const override;

 private:
  double negative_slope_;
};

// The slope below 0 is learned: "weight" [1], or one a channel (dimension 1). Best without weight
// decay, which would pull it to ReLU.
class PReLU : public Module {
 public:
  explicit PReLU(std::int64_t parameters = 1, double init = 0.25) {
    PEAL_CHECK(parameters > 0, "PReLU: expected at least one parameter, got ", parameters);
    weight = add_parameter("weight", full({parameters}, init));
  }
  Tensor forward(const Tensor& x) override { return prelu(x, weight); }
  std::string extra_repr() const override;

  Tensor weight;
};

// The slope below 0 is drawn for each element while training, and the middle of the bounds in
// evaluation.
class RReLU : public Module {
 public:
  explicit RReLU(double lower = 1.0 / 8, double upper = 1.0 / 3) : lower_(lower), upper_(upper) {}
  Tensor forward(const Tensor& x) override { return rrelu(x, lower_, upper_, training()); }
  std::string extra_repr() const override;

 private:
  double lower_, upper_;
};

class ELU : public Module {
 public:
  explicit ELU(double alpha = 1) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) override { return elu(x, alpha_); }
  std::string extra_repr() const override;

 private:
  double alpha_;
};

class SELU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return selu(x); }
};

class CELU : public Module {
 public:
  explicit CELU(double alpha = 1) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) override { return celu(x, alpha_); }
  std::string extra_repr() const override;

 private:
  double alpha_;
};

class Hardtanh : public Module {
 public:
  explicit Hardtanh(double low = -1, double high = 1) : low_(low), high_(high) {}
  Tensor forward(const Tensor& x) override { return hardtanh(x, low_, high_); }
  std::string extra_repr() const override;

 private:
  double low_;
  double high_;
};

class Hardsigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return hardsigmoid(x); }
};

class Hardswish : public Module {
 public:
  Tensor forward(const Tensor& x) override { return hardswish(x); }
};

class Hardshrink : public Module {
 public:
  explicit Hardshrink(double lambda = 0.5) : lambda_(lambda) {}
  Tensor forward(const Tensor& x) override { return hardshrink(x, lambda_); }
  std::string extra_repr() const override;

 private:
  double lambda_;
};

class Softshrink : public Module {
 public:
  explicit Softshrink(double lambda = 0.5) : lambda_(lambda) {}
  Tensor forward(const Tensor& x) override { return softshrink(x, lambda_); }
  std::string extra_repr() const override;

 private:
  double lambda_;
};

class Threshold : public Module {
 public:
  Threshold(double threshold, double value) : threshold_(threshold), value_(value) {}
  Tensor forward(const Tensor& x) override { return peal::threshold(x, threshold_, value_); }
  std::string extra_repr() const override;

 private:
  double threshold_;
  double value_;
};

}  // namespace peal::nn
