// SPDX-License-Identifier: Apache-2.0
// What ops with linear layers in them share. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <string_view>

namespace peal {

// a b of two matrices, each stored transposed by its flag, plus bias [N] or undefined.
Tensor product(std::string_view op, const Tensor& a, const Tensor& b, bool transpose_a,
               bool transpose_b, const Tensor& bias = {});

// x [..., in] as rows, of a layer whose result is [..., out].
struct LinearSizes {
  std::int64_t rows, in, out;
  Shape result;
};
// Error in op's name where weight [out, in] and bias [out] (or undefined) do not fit x's shape.
LinearSizes linear_sizes(std::string_view op, const Tensor& x, const Shape& shape,
                         const Tensor& weight, const Tensor& bias);

// From the gradient g [rows, out] and the input x [rows, in] of a layer: of its weight and its
// bias, each where it is wanted (not null). On the CPU they may be f32 beside low precision.
void linear_gradients(std::string_view op, const Tensor& g, const Tensor& x, Tensor* weight,
                      Tensor* bias, DType dtype);

}  // namespace peal
