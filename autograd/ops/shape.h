// SPDX-License-Identifier: Apache-2.0
// Ops that only change how elements are counted: results share storage with their input.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <vector>

namespace peal {

// At most one size may be -1: it is worked out. Error when the numbers of elements differ.
Tensor reshape(const Tensor& x, const std::vector<std::int64_t>& shape);
// The same elements in another's shape.
Tensor view_as(const Tensor& x, const Tensor& other);
// Dimensions start_dim and later become one.
Tensor flatten(const Tensor& x, int start_dim = 0);
// A dimension of size 1 more, which is `dim` of the result; or dimension `dim`, of size 1, less.
Tensor unsqueeze(const Tensor& x, int dim);
Tensor squeeze(const Tensor& x, int dim);

}  // namespace peal
