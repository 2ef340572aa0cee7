// SPDX-License-Identifier: Apache-2.0
// What autograd/kernels/cuda/tensor_core.h has of PTX, on the host: operations of a whole warp,
// with the layouts of registers that NVIDIA documents (PTX ISA, "Matrix fragments for
// mma.m16n8k16" and "ldmatrix"), and copies that are as late as they may be. A lane that is
// missing, an address that is not on its boundary, and a copy that nobody waits for end the kernel.
#pragma once

#include <cuda_runtime.h>

namespace cuda_host {

// ldmatrix.x4, of transposed matrices or not: lane i gives the address of row i % 8 of matrix
// i / 8.
void load_matrices(std::uint32_t (&out)[4], const void* row, bool transposed);

enum class MatrixType { f16, bf16 };
// mma.m16n8k16.row.col, f32 sums: sum += a b.
void multiply_add(MatrixType type, float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                  std::uint32_t b1);

// cp.async of 16 bytes, of which the first `bytes` are read and the others become 0; until
// copies_arrive() the place holds NaN.
void copy_later(void* to, const void* from, int bytes);
void copies_arrive();

}  // namespace cuda_host
