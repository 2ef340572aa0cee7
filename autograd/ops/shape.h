// SPDX-License-Identifier: Apache-2.0
// Ops that only change how elements are counted: results share storage with their input.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <concepts>
#include <vector>

namespace peal {

// At most one size may be -1: it is worked out. Error when the numbers of elements differ.
Tensor reshape(const Tensor& x, const std::vector<std::int64_t>& shape);
// In a Shape. (A template, so that reshape(x, {2, 3}) is the above.)
template <std::same_as<Shape> S>
Tensor reshape(const Tensor& x, const S& shape) {
  return reshape(x, std::vector<std::int64_t>(shape.begin(), shape.end()));
}
// The same elements in another's shape.
Tensor view_as(const Tensor& x, const Tensor& other);
// Dimensions start_dim to end_dim become one.
Tensor flatten(const Tensor& x, int start_dim = 0, int end_dim = -1);
// The opposite: dimension `dim` becomes these, of which one may be -1.
Tensor unflatten(const Tensor& x, int dim, const std::vector<std::int64_t>& sizes);
// A dimension of size 1 more, which is `dim` of the result.
Tensor unsqueeze(const Tensor& x, int dim);
// Without the dimensions of size 1: all of them, or those among `dims`; others stay as they are.
Tensor squeeze(const Tensor& x);
Tensor squeeze(const Tensor& x, int dim);
Tensor squeeze(const Tensor& x, const std::vector<int>& dims);
// In at least as many dimensions, by sizes of 1: [n] is [1, n] in two and [1, n, 1] in three, [n,
// m] is [n, m, 1].
Tensor atleast_1d(const Tensor& x);
Tensor atleast_2d(const Tensor& x);
Tensor atleast_3d(const Tensor& x);

}  // namespace peal
