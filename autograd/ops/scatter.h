// SPDX-License-Identifier: Apache-2.0
// Writing by index, element by element: the opposite of gather(). out[.., index[.., i, ..], ..] =
// source[.., i, ..] with the index in the place of dim's. index (i64 in [0, size), on x's device;
// another value is an Error that names it) has as many dimensions as x and source, and sizes up to
// theirs, of x's but for dim. source has x's type.
//
// Of a place that is named twice the last one stays, on every device (in PyTorch any may), and the
// gradients of all of them are its gradient, as in PyTorch. The functions that end with _ write x,
// and are recorded as x[...] = y is (in_place.h). Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>

namespace peal {

Tensor scatter(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
Tensor scatter(const Tensor& x, int dim, const Tensor& index, Scalar value);
// What is written is added to what is there.
Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source);

// What becomes of all that is written to one place, with what is there or, where include_self is
// false, without it. The gradient of a largest or smallest is shared by those that equal it. The
// mean is of floating types.
enum class ScatterReduce : std::uint8_t { sum, prod, mean, amax, amin };
Tensor scatter_reduce(const Tensor& x, int dim, const Tensor& index, const Tensor& source,
                      ScatterReduce reduce, bool include_self = true);

// In x, which is the result; of a temporary that is all that has the values.
const Tensor& scatter_(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
const Tensor& scatter_(const Tensor& x, int dim, const Tensor& index, Scalar value);
const Tensor& scatter_add_(const Tensor& x, int dim, const Tensor& index, const Tensor& source);
[[nodiscard]] Tensor scatter_(Tensor&& x, int dim, const Tensor& index, const Tensor& source);
[[nodiscard]] Tensor scatter_(Tensor&& x, int dim, const Tensor& index, Scalar value);
[[nodiscard]] Tensor scatter_add_(Tensor&& x, int dim, const Tensor& index, const Tensor& source);

}  // namespace peal
