// SPDX-License-Identifier: Apache-2.0
// Indices as kernels take them, for ops that read and write by them. Thread safety: pure functions.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <string_view>

namespace peal {

// Error where the index is not i64 on x's device, and where a value is outside of [0, x.size(dim));
// of a device's values that is told when the host next waits for it.
void check_index(std::string_view op, const Tensor& x, int dim, const Tensor& index);
// gather() of a checked index with x's sizes but for dim. Recorded.
Tensor gathered(const Tensor& x, int dim, const Tensor& index);

}  // namespace peal
