// SPDX-License-Identifier: Apache-2.0
// The sum of a matrix's rows in f16 or bf16, as a bias's gradient is, widened a part of a row at a
// time. Thread safety: as of the tensors.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>

namespace peal::cpu {

// As sum of families.def, also where out is f32. False, and nothing done, where x is not in low
// precision, or not summed over its rows alone.
bool sum_of_rows(const Tensor& out, const Tensor& x, std::uint32_t dims, double scale);

}  // namespace peal::cpu
