// SPDX-License-Identifier: Apache-2.0
// Batches of matrices as linalg's ops take them: on the host, in f64. Thread safety: pure
// functions.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace peal::linalg {

// x's matrices there; recorded. Error where x has none, or is not floating.
inline Tensor on_host(std::string_view op, const Tensor& x) {
  check_floating(op, x);
  PEAL_CHECK(x.dim() >= 2, op, ": expected matrices [..., m, n], got shape ", x.shape());
  return cast(x.to(Device{}), DType::f64);
}
inline void check_square(std::string_view op, const Tensor& a) {
  PEAL_CHECK(a.dim() >= 2 && a.size(-1) == a.size(-2), op,
             ": expected square matrices [..., n, n], got shape ", a.shape());
}
// What was made of it, as `like` is; recorded.
inline Tensor as_before(const Tensor& like, const Tensor& y) {
  return cast(y, like.dtype()).to(like.device());
}

// Without the last `count` dimensions, and with these instead.
inline Shape batch_of(const Tensor& a, int count = 2) {
  return Shape(std::span(a.shape().begin(), a.shape().end() - count));
}
inline Shape with(Shape batch, std::initializer_list<std::int64_t> sizes) {
  for (const std::int64_t size : sizes) batch.push_back(size);
  return batch;
}
// The distance from 1 to the next number of a type.
inline double epsilon_of(DType dtype) {
  return dtype == DType::f64    ? 0x1p-52
         : dtype == DType::f32  ? 0x1p-23
         : dtype == DType::bf16 ? 0x1p-7
                                : 0x1p-10;
}
inline Tensor host(const Shape& shape) { return Tensor::empty(shape, DType::f64, Device{}); }

// f(matrix, i) for each matrix of a batch in f64 on the host.
template <class F>
void each_matrix(const Tensor& a, F f) {
  const std::int64_t count = batch_of(a).numel(), size = a.size(-2) * a.size(-1);
  const double* first = a.data<double>();
  for (std::int64_t i = 0; i < count; ++i) f(first + i * size, i);
}
// "matrix 2 of shape [3, 4, 4]", or without the number where there is one.
inline std::string named(const Tensor& a, std::int64_t i) {
  return a.dim() == 2 ? concat("the matrix of shape ", a.shape())
                      : concat("matrix ", i, " of shape ", a.shape());
}

// Recorded, of f64 on the host; used by several ops.
Tensor inverse(std::string_view op, const Tensor& a);
Tensor solved_triangular(std::string_view op, const Tensor& a, const Tensor& b, bool upper,
                         bool transposed, bool unit = false);
// a^T of the last two dimensions.
Tensor flipped(const Tensor& a);
// [...] as [..., 1, 1].
Tensor beside_matrices(const Tensor& x);

}  // namespace peal::linalg
