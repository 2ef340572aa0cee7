// SPDX-License-Identifier: Apache-2.0
// Reading and writing where a mask (bool) is true. x[mask] and x[mask] = y (indexing.h) do most of
// it in one word. The mask broadcasts. nonzero, masked_select and where(mask) have as many results
// as are true, so the host waits for a device. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// Where x differs from 0, in order: i64 [count, dimensions of x]. Not recorded.
Tensor nonzero(const Tensor& x);
// The same, a tensor [count] a dimension: x[{i[0], i[1]}] are the elements.
Tensors where(const Tensor& condition);
// [count], in order. x is stretched to the mask as well.
Tensor masked_select(const Tensor& x, const Tensor& mask);

// x, or where the mask is true a number or a tensor of no dimensions, cast to x's type.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
// x, or where the mask is true the elements of source in their order, of which it has enough.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);

// In x, which is the result; of a temporary that is all that has the values.
const Tensor& masked_fill_(const Tensor& x, const Tensor& mask, Scalar value);
const Tensor& masked_fill_(const Tensor& x, const Tensor& mask, const Tensor& value);
const Tensor& masked_scatter_(const Tensor& x, const Tensor& mask, const Tensor& source);
[[nodiscard]] Tensor masked_fill_(Tensor&& x, const Tensor& mask, Scalar value);
[[nodiscard]] Tensor masked_fill_(Tensor&& x, const Tensor& mask, const Tensor& value);
[[nodiscard]] Tensor masked_scatter_(Tensor&& x, const Tensor& mask, const Tensor& source);

}  // namespace peal
