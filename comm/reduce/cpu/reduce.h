// SPDX-License-Identifier: Apache-2.0
// The CPU's reduction kernels for the wire: plain arrays of one type, no tensors.
// Thread safety: pure but for dst.
#pragma once

#include <peal/autograd/core/dtype.h>
#include <peal/comm/reduce/reduce_op.h>

#include <cstdint>

namespace peal::comm {

// dst[i] = dst[i] (op) src[i]; avg and premul_sum add. Error for a type the op does not have, and
// for f16 and bf16, which are reduced as f32 (widen and narrow below).
void reduce_cpu(DType dtype, ReduceOp op, void* dst, const void* src, std::int64_t count);

// data[i] *= factor, in the element type.
void scale_cpu(DType dtype, void* data, double factor, std::int64_t count);
// data[i] /= divisor, truncating for integers. REQUIRES: divisor > 0.
void divide_cpu(DType dtype, void* data, std::int64_t divisor, std::int64_t count);

// f16 or bf16 to f32 and back (nearest, ties to even).
void widen_cpu(DType dtype, float* dst, const void* src, std::int64_t count);
void narrow_cpu(DType dtype, void* dst, const float* src, std::int64_t count);

}  // namespace peal::comm
