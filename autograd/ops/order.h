// SPDX-License-Identifier: Apache-2.0
// Order along a dimension. A NaN is larger than all numbers, and equal elements keep their order,
// so every sort is stable. Indices are i64; gradients go to the places that values come from. A
// tensor of no dimensions is one of one element. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/reduce.h>

#include <cstdint>

namespace peal {

// Sorted values, and where they were.
Extreme sort(const Tensor& x, int dim = -1, bool descending = false);
Tensor argsort(const Tensor& x, int dim = -1, bool descending = false);
// sort() along the first dimension, without the places.
Tensor msort(const Tensor& x);
// The k largest, or smallest, in order.
Extreme topk(const Tensor& x, std::int64_t k, int dim = -1, bool largest = true);
// The k-th smallest, counted from 1. The dimension goes, unless keepdim.
Extreme kthvalue(const Tensor& x, std::int64_t k, int dim = -1, bool keepdim = false);

}  // namespace peal
