// SPDX-License-Identifier: Apache-2.0
// What tensors choose from a part of another (indexing.h): `picks` has for each dimension of the
// part i64 indices on the CPU, in range, or an undefined tensor where it is taken whole. They
// broadcast against each other; their dimensions come in the place of those that they choose from
// where these are neighbours, else in front. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/geometry.h>

namespace peal {

// Of what is chosen.
Shape chosen_shape(const Shape& part, const Tensors& picks);
// Recorded.
Tensor chosen_from(const Tensor& part, const Tensors& picks);
// The part with these values, which stretch, where the tensors choose; of a place that is chosen
// twice the last stays, and has the gradient. Recorded.
Tensor with_chosen(const Tensor& part, const Tensors& picks, const Tensor& values);
// The part with the values added there, all of them. Recorded.
Tensor with_added(const Tensor& part, const Tensors& picks, const Tensor& values);
// Writes them, or adds them, into the part of x that has this shape and lies at `at`, in steps. Not
// recorded.
void write_chosen(const Tensor& x, const Shape& part, const Steps& steps, std::int64_t at,
                  const Tensors& picks, const Tensor& values, bool accumulate);

// Values that are written into this shape: without the leading sizes of 1 that it lacks. Error
// where they do not stretch to it. Recorded.
Tensor fitted(const Tensor& values, const Shape& shape);

}  // namespace peal
