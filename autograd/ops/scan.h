// SPDX-License-Identifier: Apache-2.0
// Scans: results of x's shape, of the elements up to each, itself included, along one dimension.
// Thread safety: as of the operands.
#pragma once

#include <peal/autograd/ops/reduce.h>

namespace peal {

// Running sums and products; of integers and bool as i64.
Tensor cumsum(const Tensor& x, int dim);
// Where its gradient is to be differentiated in turn, and an element is 0, that takes the square of
// a line's length in memory, for each line.
Tensor cumprod(const Tensor& x, int dim);
// log(sum of e^x).
Tensor logcumsumexp(const Tensor& x, int dim);
// The largest or smallest so far, the last of equals, a NaN before all, and where it is.
Extreme cummax(const Tensor& x, int dim);
Extreme cummin(const Tensor& x, int dim);
// x[i + 1] - x[i], n times over.
Tensor diff(const Tensor& x, int n = 1, int dim = -1);

}  // namespace peal
