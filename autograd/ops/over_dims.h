// SPDX-License-Identifier: Apache-2.0
// OverDims: what a reduction over some dimensions makes of a shape, for ops. Thread safety: a
// value.
#pragma once

#include <peal/autograd/core/dims.h>
#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <string_view>

namespace peal {

struct OverDims {
  std::uint32_t mask = 0;    // of those that are reduced
  std::int64_t reduced = 1;  // how many elements go into one
  Shape kept, result;        // with size 1 where it is reduced, and as it is asked for

  // Error where x has no such dimension, or one is named twice.
  OverDims(std::string_view op, const Tensor& x, const Dims& dims, bool keepdim)
      : OverDims(x.shape(), mask_of(op, x, dims), keepdim) {}
  // Over all.
  explicit OverDims(const Tensor& x) : OverDims(x.shape(), (1u << x.dim()) - 1, false) {}
  OverDims(const Shape& shape, std::uint32_t over, bool keepdim) : mask(over) {
    for (int i = 0; i < shape.dim(); ++i) {
      const bool gone = (mask >> i) & 1;
      if (gone) reduced *= shape[i];
      kept.push_back(gone ? 1 : shape[i]);
      if (!gone || keepdim) result.push_back(gone ? 1 : shape[i]);
    }
  }

 private:
  static std::uint32_t mask_of(std::string_view op, const Tensor& x, const Dims& dims) {
    std::uint32_t mask = 0;
    for (const int dim : dims) {
      const int at = dim < 0 ? dim + x.dim() : dim;
      PEAL_CHECK(at >= 0 && at < x.dim(), op, ": dimension ", dim, " of shape ", x.shape());
      PEAL_CHECK(((mask >> at) & 1) == 0, op, ": dimension ", dim, " of shape ", x.shape(),
                 " is named twice");
      mask |= 1u << at;
    }
    return mask;
  }
};

// The sum, times `scale`.
Tensor sum_over(std::string_view op, const Tensor& x, const OverDims& over, double scale = 1);

}  // namespace peal
