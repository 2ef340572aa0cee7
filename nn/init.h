// SPDX-License-Identifier: Apache-2.0
// How parameters start. Draws from the context's generator, so that a seed decides a model, on
// every device alike. Thread safety: as of the context.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>

namespace peal::nn::init {

// Inputs of one output: the product of all sizes but the first, for a weight [out, in, ...]; and
// outputs of one input.
std::int64_t fan_in(const Shape& weight);
std::int64_t fan_out(const Shape& weight);

// 1 / sqrt(fan_in): the bound of PyTorch's Linear and Conv2d, for weight and bias alike. It is He's
// uniform initialisation with a = sqrt(5) (He et al., "Delving deep into rectifiers", ICCV 2015,
// section 2.2): sqrt(2 / (1 + a^2)) * sqrt(3 / fan_in).
double fan_in_bound(const Shape& weight);

// A new f32 tensor, uniform in [-bound, bound).
Tensor uniform(const Shape& shape, double bound);

// PyTorch's torch.nn.init: these overwrite x, of any floating type and device, and count a version.
void uniform_(const Tensor& x, double low = 0, double high = 1);
void normal_(const Tensor& x, double mean = 0, double deviation = 1);
void constant_(const Tensor& x, double value);
void zeros_(const Tensor& x);
void ones_(const Tensor& x);
// A matrix with ones on its diagonal.
void eye_(const Tensor& matrix);
// A weight [out, in / groups, kernel ...] of one to three sizes of a kernel, whose convolution
// gives each group's first channels back as they are (with padding to keep sizes).
void dirac_(const Tensor& weight, std::int64_t groups = 1);
// A normal matrix [rows, columns] of which in each column the share `sparsity`, rounded up, is 0
// (Martens, "Deep learning via Hessian-free optimization", ICML 2010).
void sparse_(const Tensor& matrix, double sparsity, double deviation = 0.01);
// Of a normal distribution cut to [low, high]: each element from one uniform number, through the
// inverse of the distribution function.
void trunc_normal_(const Tensor& x, double mean = 0, double deviation = 1, double low = -2,
                   double high = 2);

// What keeps the variance through a nonlinearity; `slope` is leaky_relu's.
enum class Nonlinearity : std::uint8_t { linear, sigmoid, tanh, relu, leaky_relu, selu };
double calculate_gain(Nonlinearity nonlinearity, double slope = 0.01);

// Deviation gain sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, "Understanding the difficulty of
// training deep feedforward neural networks", 2010).
void xavier_uniform_(const Tensor& weight, double gain = 1);
void xavier_normal_(const Tensor& weight, double gain = 1);

enum class FanMode : std::uint8_t { fan_in, fan_out };
struct KaimingOptions {
  double a = 0;  // the slope of leaky_relu
  FanMode mode = FanMode::fan_in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;
};
// Deviation gain / sqrt(fan) (He et al., 2015, section 2.2).
void kaiming_uniform_(const Tensor& weight, const KaimingOptions& options = {});
void kaiming_normal_(const Tensor& weight, const KaimingOptions& options = {});

// gain times a random matrix [size 0, all others] with orthonormal rows or columns, of which there
// are fewer (Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear
// neural networks", 2013). Takes time of the smaller size squared times the larger one.
void orthogonal_(const Tensor& weight, double gain = 1);

}  // namespace peal::nn::init
