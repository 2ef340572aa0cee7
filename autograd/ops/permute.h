// SPDX-License-Identifier: Apache-2.0
// Other orders and parts of a tensor. Tensors are dense, so the results are copies.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <limits>
#include <vector>

namespace peal {

// Dimension i of the result is dimension dims[i] of x; each once, negative ones count from the end.
Tensor permute(const Tensor& x, const std::vector<int>& dims);
// Two dimensions change places.
Tensor transpose(const Tensor& x, int dim0, int dim1);

// The indices start, start + step, ... below end along dim. Negative ones count from the end, and
// those beyond it are cut, as in Python: x[:, 2:-1] is slice(x, 1, 2, -1). REQUIRES: step >= 1.
Tensor slice(const Tensor& x, int dim, std::int64_t start,
             std::int64_t end = std::numeric_limits<std::int64_t>::max(), std::int64_t step = 1);
// [start, start + length) along dim; an Error where that leaves x.
Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length);
// One index along dim, which goes.
Tensor select(const Tensor& x, int dim, std::int64_t index);

}  // namespace peal
