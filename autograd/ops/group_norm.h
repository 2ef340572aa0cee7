// SPDX-License-Identifier: Apache-2.0
// Normalisations within each sample, with PyTorch's semantics: of groups of channels, of channels
// alone, by the root of the mean square, by neighbouring channels.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <optional>

namespace peal {

// Of x [N, C, ...], each sample's groups of C / groups channels to mean 0 and variance 1, times
// weight [C] plus bias [C], either of which may be undefined (Wu and He, "Group normalization",
// 2018).
Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

struct InstanceNormOptions {
  bool use_input_stats = true;  // else the running ones
  double momentum = 0.1;        // the running statistics' share of the new
  double eps = 1e-5;
};

// Likewise each channel of each sample of x [N, C, ...], of which there has to be more than one
// element; running_mean and running_var [C], where they are defined, move towards the means over
// the samples (Ulyanov et al., "Instance normalization", 2016).
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {},
                     const Tensor& running_var = {}, const Tensor& weight = {},
                     const Tensor& bias = {}, const InstanceNormOptions& options = {});

// x / sqrt(mean of x^2 + eps) over the last dimensions, whose sizes are `shape`, times weight of
// that shape or undefined. No eps: the machine's of the type that is computed in (Zhang and
// Sennrich, "Root mean square layer normalization", 2019).
Tensor rms_norm(const Tensor& x, const Shape& shape, const Tensor& weight = {},
                std::optional<double> eps = std::nullopt);

struct LocalResponseNormOptions {
  double alpha = 1e-4, beta = 0.75, k = 1;
};
// x / (k + alpha m)^beta, m the mean of x^2 over `size` neighbouring channels of x [N, C, ...],
// with zeros beyond them (Krizhevsky et al., "ImageNet classification with deep convolutional
// neural networks", 2012, section 3.3).
Tensor local_response_norm(const Tensor& x, std::int64_t size,
                           const LocalResponseNormOptions& options = {});

}  // namespace peal
