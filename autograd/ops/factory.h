// SPDX-License-Identifier: Apache-2.0
// New tensors with given or random elements. Random ones draw from the context's generator (rng.h),
// so they are equal on every device and for any number of threads. None is recorded.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

Tensor full(const Shape& shape, double value, DType dtype = DType::f32,
            Device device = context().device);
Tensor ones(const Shape& shape, DType dtype = DType::f32, Device device = context().device);
// 0, 1, ..., n-1.
Tensor arange(std::int64_t n, DType dtype = DType::i64, Device device = context().device);
// Uniform in [low, high).
Tensor uniform(const Shape& shape, double low, double high, DType dtype = DType::f32,
               Device device = context().device);
// Normal with mean 0 and standard deviation 1 (Box-Muller).
Tensor randn(const Shape& shape, DType dtype = DType::f32, Device device = context().device);
// Overwrites every element; counts a version. Error for a temporary that nobody else holds
// (core/in_place.h).
void fill_(const Tensor& x, double value);
void fill_(Tensor&& x, double value);

}  // namespace peal
