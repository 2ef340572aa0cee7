// SPDX-License-Identifier: Apache-2.0
// Normalisations, with PyTorch's semantics.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// Over the last dimensions, whose sizes are `shape`: (x - mean) / sqrt(variance + eps) * weight +
// bias; weight and bias have that shape or are undefined (Ba et al., "Layer normalization", 2016).
Tensor layer_norm(const Tensor& x, const Shape& shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

struct BatchNormOptions {
  bool training = false;
  double momentum = 0.1;  // the running statistics' share of the new
  double eps = 1e-5;
};

// Of x [N, C] or [N, C, ...] by channel; weight and bias [C] or undefined (Ioffe and Szegedy,
// "Batch normalization", 2015). While training it normalises with the batch's own statistics and
// moves running_mean and running_var [C], where they are defined, towards them (the variance with
// one element less); else it takes the running ones, and where those are undefined the batch's.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight = {}, const Tensor& bias = {},
                  const BatchNormOptions& options = {});

}  // namespace peal
