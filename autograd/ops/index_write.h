// SPDX-License-Identifier: Apache-2.0
// Writing by index, slice by slice: the opposite of index_select(). Slices of x at index [n] along
// dim (i64 in [0, size), on x's device; another value is an Error that names it) become, or are
// added to, those of source, which has n along dim, x's other sizes and x's type. Of a slice that
// is named twice, and of in-place functions, scatter.h tells. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// Added, times alpha.
Tensor index_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source,
                 Scalar alpha = 1);
Tensor index_copy(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
// With one value, a number or a tensor of no dimensions.
Tensor index_fill(const Tensor& x, int dim, const Tensor& index, Scalar value);
Tensor index_fill(const Tensor& x, int dim, const Tensor& index, const Tensor& value);

// In x, which is the result; of a temporary that is all that has the values.
const Tensor& index_add_(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
const Tensor& index_copy_(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
const Tensor& index_fill_(const Tensor& x, int dim, const Tensor& index, Scalar value);
[[nodiscard]] Tensor index_add_(Tensor&& x, int dim, const Tensor& index, const Tensor& source);
[[nodiscard]] Tensor index_copy_(Tensor&& x, int dim, const Tensor& index, const Tensor& source);
[[nodiscard]] Tensor index_fill_(Tensor&& x, int dim, const Tensor& index, Scalar value);

}  // namespace peal
