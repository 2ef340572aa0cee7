// SPDX-License-Identifier: Apache-2.0
// Softmax of one row, shifted by its largest element. Thread safety: as of the rows.
#pragma once

#include <peal/autograd/kernels/cpu/loops.h>

#include <cmath>
#include <cstdint>

namespace peal::cpu {

// What a row was divided by: the sum of exponentials of what is less than the largest by so much.
template <class T>
struct SoftmaxSum {
  T largest;
  double total;
};

// out may be x. A row that is -infinity throughout becomes NaN, as in PyTorch. REQUIRES: n >= 1.
template <class T>
SoftmaxSum<T> softmax_row(T* out, const T* x, std::int64_t n) {
  const T largest = real_loops<T>().max(x, n);
  double total = 0;
  if constexpr (std::is_same_v<T, float>) {
    total = math_loops().exp_shifted(out, x, largest, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) total += out[i] = std::exp(x[i] - largest);
  }
  loops<T>().unary(Unary::mul_scalar, out, out, 1 / total, n);
  return {largest, total};
}

// dx = y (dy - sum(y dy)); dx may be dy.
template <class T>
void softmax_row_backward(T* dx, const T* y, const T* dy, std::int64_t n) {
  const T total = static_cast<T>(norm_loops<T>().dot(y, dy, n));
  for (std::int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - total);
}

}  // namespace peal::cpu
