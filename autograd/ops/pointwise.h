// SPDX-License-Identifier: Apache-2.0
// How functions of one element are run and recorded.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/table.h>

#include <string_view>

namespace peal {

// y = f(x), of a floating type; s and t are f's numbers.
Tensor apply_pointwise(std::string_view op, Pointwise f, const Tensor& x, double s = 0,
                       double t = 0);

}  // namespace peal
