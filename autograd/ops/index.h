// SPDX-License-Identifier: Apache-2.0
// Reading by index. Indices are i64 in [0, size); another value is an Error that names it. The
// gradients of what is read several times add up.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <optional>

namespace peal {

// The slices of x at index [n] along dim: that size becomes n.
Tensor index_select(const Tensor& x, int dim, const Tensor& index);
// out[i, j, ...] = x[.., index[i, j, ...], ..] with the index in the place of dim's. index has as
// many dimensions as x, and sizes up to theirs but for dim.
Tensor gather(const Tensor& x, int dim, const Tensor& index);
// The same, where x and index are stretched to each other but for dim; without one, of all elements
// in one row.
Tensor take_along_dim(const Tensor& x, const Tensor& index, std::optional<int> dim = std::nullopt);
// x's elements at these places of all in one row, in the index's shape. Negative ones count from
// the end.
Tensor take(const Tensor& x, const Tensor& index);
// Classes [...] -> [..., num_classes] of i64: 1 at the class, 0 elsewhere. -1: as many as there
// are, which the host reads.
Tensor one_hot(const Tensor& index, std::int64_t num_classes = -1);
// weight [count, width], index [...] -> [..., width]. The row padding_idx (a negative one counts
// from the end) gets no gradient.
Tensor embedding(const Tensor& index, const Tensor& weight,
                 std::optional<std::int64_t> padding_idx = std::nullopt);

}  // namespace peal
