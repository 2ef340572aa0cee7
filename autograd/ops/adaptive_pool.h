// SPDX-License-Identifier: Apache-2.0
// Means and extremes over shares of the input: output i of n is that over the elements from floor(i
// size / n) to ceil((i + 1) size / n), so shares may overlap. Of sequences [N, C, L], images [N, C,
// H, W] and volumes [N, C, D, H, W], or of one of these without N, to [N, C, size...]. Thread
// safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/pair.h>
#include <peal/autograd/ops/reduce.h>

namespace peal {

Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t size);
Tensor adaptive_avg_pool2d(const Tensor& x, Pair size);
Tensor adaptive_avg_pool3d(const Tensor& x, Triple size);

// The largest; NaN wins. The elements of all windows are copied.
Tensor adaptive_max_pool1d(const Tensor& x, std::int64_t size);
Tensor adaptive_max_pool2d(const Tensor& x, Pair size);
Tensor adaptive_max_pool3d(const Tensor& x, Triple size);
// And where it lies: its index among all elements behind the channels in a row, i64.
Extreme adaptive_max_pool1d_with_indices(const Tensor& x, std::int64_t size);
Extreme adaptive_max_pool2d_with_indices(const Tensor& x, Pair size);
Extreme adaptive_max_pool3d_with_indices(const Tensor& x, Triple size);

}  // namespace peal
