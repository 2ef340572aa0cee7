// SPDX-License-Identifier: Apache-2.0
// Which elements are finite, and whether tensors are equal, or nearly. Nothing is recorded but
// nan_to_num. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <optional>

namespace peal {

// As bool; integers and masks are finite.
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);
// x with numbers in the place of NaN and of infinities: of those that are not given, the largest
// and the smallest of x's type. No gradient flows through what was replaced.
Tensor nan_to_num(const Tensor& x, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});

// |a - b| <= atol + rtol |b|, element by element, as bool, or of all of them; what is equal is
// close, infinities among them, and NaN with NaN where equal_nan. Of one type and device; they
// broadcast.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false);
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);
// Whether they have one shape, and equal elements; a NaN equals nothing. Of one type and device.
bool equal(const Tensor& a, const Tensor& b);

}  // namespace peal
