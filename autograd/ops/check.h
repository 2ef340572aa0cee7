// SPDX-License-Identifier: Apache-2.0
// What ops ask of their operands, with errors that name op, shapes and types, and where results go.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <string_view>

#include <cmath>
#include <limits>
#include <type_traits>

namespace peal {

// One dtype and one device.
inline void check_alike(std::string_view op, const Tensor& a, const Tensor& b) {
  PEAL_CHECK(a.dtype() == b.dtype(), op, ": both operands must have one type, got ", a.dtype(), " ",
             a.shape(), " and ", b.dtype(), " ", b.shape());
  PEAL_CHECK(a.device() == b.device(), op, ": both operands must be on one device, got ",
             a.device(), " and ", b.device());
}

inline void check_floating(std::string_view op, const Tensor& x) {
  PEAL_CHECK(is_floating(x.dtype()), op, ": expected a floating type, got ", x.dtype(), " ",
             x.shape());
}

// `dim` counted from the front; Error where x has no such dimension.
inline int checked_dim(std::string_view op, const Tensor& x, int dim) {
  const int at = dim < 0 ? dim + x.dim() : dim;
  PEAL_CHECK(at >= 0 && at < x.dim(), op, ": dimension ", dim, " of shape ", x.shape());
  return at;
}

// For an elementwise result: x's own storage where no other handle reaches it, else as much anew.
// The result is another tensor, so that x keeps its place on the tape.
inline Tensor like_or_over(const Tensor& x) {
  if (!x.owned_alone()) return Tensor::empty(x.shape(), x.dtype(), x.device());
  x.storage()->mark_own();
  return x.detach();
}

// Error where an integer type would have to cut the number off.
inline void check_value(std::string_view op, double value, DType dtype) {
  visit(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      // 2^63 itself is the first double past the largest i64.
      const double past = std::ldexp(1.0, std::numeric_limits<T>::digits);
      PEAL_CHECK(value == std::floor(value) && value < past &&
                     value >= static_cast<double>(std::numeric_limits<T>::min()),
                 op, ": ", value, " is not a value of ", dtype);
    }
  });
}

}  // namespace peal
