// SPDX-License-Identifier: Apache-2.0
// Reductions and scans: sums, means and extremes over all elements or over some dimensions, and
// running sums. Low precision accumulates in f32.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <vector>

namespace peal {

Tensor sum(const Tensor& x);   // a scalar
Tensor mean(const Tensor& x);  // a scalar; Error for integers and for no elements
// Over `dims` (negative ones count from the end); kept with size 1 where keepdim.
Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keepdim = false);
Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keepdim = false);
// Of x's shape: the sums of the elements up to each, itself included, along `dim`. Integers and
// bool as i64.
Tensor cumsum(const Tensor& x, int dim);
// Index of the largest or smallest element along `dim` (the first among equals, a NaN before all)
// as i64. Not recorded.
Tensor argmax(const Tensor& x, int dim);
Tensor argmin(const Tensor& x, int dim);

// The largest or smallest along `dim`, and where they are; the gradient goes to those places.
struct Extreme {
  Tensor values, indices;
};
Extreme max(const Tensor& x, int dim, bool keepdim = false);
Extreme min(const Tensor& x, int dim, bool keepdim = false);
// Of all elements, a scalar. The gradient goes to the first of equals (PyTorch shares it out).
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);

}  // namespace peal
