// SPDX-License-Identifier: Apache-2.0
// Normalisations, with PyTorch's semantics.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <functional>

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
// one element less), but not where backward computes it anew (checkpoint.h); else it takes the
// running ones, and where those are undefined the batch's.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight = {}, const Tensor& bias = {},
                  const BatchNormOptions& options = {});

// A batch that lies in parts, and how one of them meets the others; nn/parallel/sync_batch_norm.h
// has it of a process group. Both functions are called once for a forward and a backward, in every
// part alike.
struct BatchParts {
  std::int64_t count, own;  // how many, and which this is
  // rows [count, n], of which the own one is there: the others come from their parts.
  std::function<void(const Tensor& rows)> gather;
  // Becomes the sum over the parts.
  std::function<void(const Tensor& sums)> add_up;
};

// batch_norm of the whole batch, while training, of which x is a part: the same outputs, gradients
// and running statistics. x may be empty ([0, C, ...]). The gradients of weight and bias are this
// part's own, to be added up by whoever does so for all parameters. It is recorded wherever
// gradients are, even if nothing here wants one, so that its backward meets the others'; backward
// goes through it in all parts or in none. Error, in all parts, where there are fewer than two
// values a channel; a part that has so few itself waits for its device to see it, and not in a
// captured graph. Statistics travel in the type that is computed in.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, const BatchNormOptions& options,
                  const BatchParts& parts);

}  // namespace peal
