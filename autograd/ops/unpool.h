// SPDX-License-Identifier: Apache-2.0
// The way back from a max pool: values to where they lay, zeros elsewhere (Zeiler et al., "Adaptive
// deconvolutional networks", 2011). And pools of powers. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/pool.h>

#include <optional>

namespace peal {

// Of the pool that was. output_size: of the result behind the channels, which a pool forgets; the
// usual one is (size - 1) stride - 2 padding + kernel.
struct MaxUnpool1dOptions {
  PoolStride1d stride{};
  std::int64_t padding = 0;
  std::optional<Single> output_size{};
};
struct MaxUnpool2dOptions {
  PoolStride stride{};
  Pair padding = 0;
  std::optional<Pair> output_size{};
};
struct MaxUnpool3dOptions {
  PoolStride3d stride{};
  Triple padding = 0;
  std::optional<Triple> output_size{};
};

// x and indices as max_pool*_with_indices give them. Of two values for one place either is taken.
Tensor max_unpool1d(const Tensor& x, const Tensor& indices, std::int64_t kernel,
                    const MaxUnpool1dOptions& options = {});
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, Pair kernel,
                    const MaxUnpool2dOptions& options = {});
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, Triple kernel,
                    const MaxUnpool3dOptions& options = {});

// (sum of x^p over each window)^(1/p), without absolute values, as PyTorch's: what is below 0
// counts as its opposite.
Tensor lp_pool1d(const Tensor& x, double p, std::int64_t kernel, PoolStride1d stride = {},
                 bool ceil_mode = false);
Tensor lp_pool2d(const Tensor& x, double p, Pair kernel, PoolStride stride = {},
                 bool ceil_mode = false);
Tensor lp_pool3d(const Tensor& x, double p, Triple kernel, PoolStride3d stride = {},
                 bool ceil_mode = false);

}  // namespace peal
