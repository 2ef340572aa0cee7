// SPDX-License-Identifier: Apache-2.0
// The same elements in other places: permute.h by other names, and backwards and around along
// dimensions. Tensors are dense, so the results are copies.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <vector>

namespace peal {

// transpose().
Tensor swapaxes(const Tensor& x, int axis0, int axis1);
// Of a matrix; x itself where it has fewer than two dimensions.
Tensor t(const Tensor& x);
// Dimension source[i] becomes dimension destination[i]; the others keep their order.
Tensor movedim(const Tensor& x, const std::vector<int>& source,
               const std::vector<int>& destination);
Tensor movedim(const Tensor& x, int source, int destination);

// Backwards along these dimensions; fliplr along the second, flipud along the first.
Tensor flip(const Tensor& x, const std::vector<int>& dims);
Tensor flip(const Tensor& x, int dim);
Tensor fliplr(const Tensor& x);
Tensor flipud(const Tensor& x);
// By k quarters of a turn, from the first of two dimensions towards the second; back where k < 0.
Tensor rot90(const Tensor& x, std::int64_t k = 1, const std::vector<int>& dims = {0, 1});
// Elements move by `shift`, those past the end come in again at the front. Without a dimension they
// move in one row of all.
Tensor roll(const Tensor& x, std::int64_t shift);
Tensor roll(const Tensor& x, std::int64_t shift, int dim);
Tensor roll(const Tensor& x, const std::vector<std::int64_t>& shifts, const std::vector<int>& dims);

}  // namespace peal
