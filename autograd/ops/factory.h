// SPDX-License-Identifier: Apache-2.0
// New tensors with given elements (with random ones: random.h). None is recorded.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <optional>

namespace peal {

// All of one value; unless a type is named it is the number's: i64, f32, or bool.
Tensor full(const Shape& shape, Scalar value, std::optional<DType> dtype = std::nullopt,
            Device device = context().device);
Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = context().device);
Tensor ones(const Shape& shape, DType dtype = DType::f32, Device device = context().device);
// Uninitialised.
Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = context().device);
// In x's shape, on its device, and in its type unless another is named.
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype = std::nullopt);
Tensor ones_like(const Tensor& x, std::optional<DType> dtype = std::nullopt);
Tensor full_like(const Tensor& x, Scalar value, std::optional<DType> dtype = std::nullopt);
Tensor empty_like(const Tensor& x, std::optional<DType> dtype = std::nullopt);

// 0, 1, ... below end, or start, start + step, ... before end. Of integers it is i64, if any number
// is floating f32, unless a type is named.
Tensor arange(Scalar end, std::optional<DType> dtype = std::nullopt,
              Device device = context().device);
Tensor arange(Scalar start, Scalar end, Scalar step = 1, std::optional<DType> dtype = std::nullopt,
              Device device = context().device);
// `steps` numbers, equally far apart, from start to end, both included; and base to the power of
// these.
Tensor linspace(double start, double end, std::int64_t steps, DType dtype = DType::f32,
                Device device = context().device);
Tensor logspace(double start, double end, std::int64_t steps, double base = 10,
                DType dtype = DType::f32, Device device = context().device);
// 1 on the diagonal of an [n, m] matrix, 0 elsewhere; m is n where it is left out.
Tensor eye(std::int64_t n, std::optional<std::int64_t> m = std::nullopt, DType dtype = DType::f32,
           Device device = context().device);

// Overwrites every element; counts a version. Error for a temporary that nobody else holds
// (core/in_place.h).
void fill_(const Tensor& x, Scalar value);
void fill_(Tensor&& x, Scalar value);

}  // namespace peal
