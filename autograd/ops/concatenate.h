// SPDX-License-Identifier: Apache-2.0
// Joining tensors and taking them apart along a dimension.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <vector>

namespace peal {

// One after the other along dim; all other sizes are equal. At least one tensor.
Tensor cat(const Tensors& tensors, int dim = 0);
// Side by side along a new dimension, which is `dim` of the result; all shapes are equal.
Tensor stack(const Tensors& tensors, int dim = 0);
// Parts of these sizes, which add up to dim's; or all of one size, the last of what remains.
Tensors split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim = 0);
Tensors split(const Tensor& x, std::int64_t size, int dim = 0);

}  // namespace peal
