// SPDX-License-Identifier: Apache-2.0
// Middle, common and ranked values, by order.h. Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/reduce.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace peal {

// The middle in order, the lower of two; a NaN where there is one, or (nanmedian) of the others. Of
// all elements, a scalar, whose gradient is shared by those that equal it; or along dim with where
// it is, and the gradient goes there.
Tensor median(const Tensor& x);
Extreme median(const Tensor& x, int dim, bool keepdim = false);
Tensor nanmedian(const Tensor& x);
Extreme nanmedian(const Tensor& x, int dim, bool keepdim = false);

// What comes most often along dim, the smallest of several, and where it is last.
Extreme mode(const Tensor& x, int dim = -1, bool keepdim = false);

// Between the element of rank floor(q (n - 1)) in order and the next one: linear, the lower, the
// higher, the nearest (of two the even rank), or the middle.
enum class Interpolation : std::uint8_t { linear, lower, higher, nearest, midpoint };
// q in [0, 1] of all elements or along dim; of several q the results are stacked in front. NaN
// where one is.
Tensor quantile(const Tensor& x, double q, std::optional<int> dim = std::nullopt,
                bool keepdim = false, Interpolation interpolation = Interpolation::linear);
Tensor quantile(const Tensor& x, const std::vector<double>& q,
                std::optional<int> dim = std::nullopt, bool keepdim = false,
                Interpolation interpolation = Interpolation::linear);

}  // namespace peal
