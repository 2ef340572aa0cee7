// SPDX-License-Identifier: Apache-2.0
// Reductions: sums, means, products, extremes and truths over all elements or over some dimensions
// (negative ones count from the end), which are kept with size 1 where keepdim. Low precision
// accumulates in f32. Spreads and norms are in spread.h, running ones in scan.h. Thread safety: as
// of the operands.
#pragma once

#include <peal/autograd/core/dims.h>
#include <peal/autograd/core/tensor.h>

namespace peal {

// Of integers and bool as i64.
Tensor sum(const Tensor& x);
Tensor sum(const Tensor& x, const Dims& dims, bool keepdim = false);
// Error for integers and for no elements.
Tensor mean(const Tensor& x);
Tensor mean(const Tensor& x, const Dims& dims, bool keepdim = false);
// Without what is NaN; the mean is over those that are left.
Tensor nansum(const Tensor& x);
Tensor nansum(const Tensor& x, const Dims& dims, bool keepdim = false);
Tensor nanmean(const Tensor& x);
Tensor nanmean(const Tensor& x, const Dims& dims, bool keepdim = false);
// 1 of no elements; of integers and bool as i64. The gradient is exact where elements are 0, its
// own gradient where none is.
Tensor prod(const Tensor& x);
Tensor prod(const Tensor& x, int dim, bool keepdim = false);

// Whether elements differ from 0, as bool; not recorded.
Tensor any(const Tensor& x);
Tensor any(const Tensor& x, const Dims& dims, bool keepdim = false);
Tensor all(const Tensor& x);
Tensor all(const Tensor& x, const Dims& dims, bool keepdim = false);
// How many do, as i64.
Tensor count_nonzero(const Tensor& x);
Tensor count_nonzero(const Tensor& x, const Dims& dims);

// The largest and smallest, a NaN before all; equals share the gradient.
Tensor amax(const Tensor& x);
Tensor amax(const Tensor& x, const Dims& dims, bool keepdim = false);
Tensor amin(const Tensor& x);
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
// Index of the largest or smallest element along `dim` (the first among equals, a NaN before all),
// or of all elements as if they lay in a row, as i64. Not recorded.
Tensor argmax(const Tensor& x);
Tensor argmin(const Tensor& x);
Tensor argmax(const Tensor& x, int dim, bool keepdim = false);
Tensor argmin(const Tensor& x, int dim, bool keepdim = false);

// Values and where they are; the gradient goes to those places.
struct Extreme {
  Tensor values, indices;
};
Extreme max(const Tensor& x, int dim, bool keepdim = false);
Extreme min(const Tensor& x, int dim, bool keepdim = false);
// The smallest and the largest: of all elements, or along one dimension.
struct MinMax {
  Tensor min, max;
};
MinMax aminmax(const Tensor& x);
MinMax aminmax(const Tensor& x, int dim, bool keepdim = false);

// log(sum of e^x), where no x is too large for that; -inf of no elements.
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);

}  // namespace peal
