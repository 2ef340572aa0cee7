// SPDX-License-Identifier: Apache-2.0
// Index arithmetic of kernels. Divisor divides by a number that is known before the launch, with a
// multiplication where 32 bits suffice (Granlund and Montgomery, "Division by invariant integers
// using multiplication", PLDI 1994, figure 4.1). Places says where the operands of a dense result
// have what element i needs, after neighbouring dimensions that all traverse alike were merged
// (kernels/walk.h). Thread safety: values.
#pragma once

#include <peal/autograd/kernels/walk.h>

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

namespace peal::cuda {

struct Divisor {
  std::int64_t by = 1;
  std::uint32_t multiplier = 0, shift = 0;

  Divisor() = default;
  Divisor(std::int64_t by) : by(by) {  // NOLINT: stands for the number
    if (by >> 31 != 0) return;
    shift = by <= 1
                ? 0
                : static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(by - 1)));
    const auto wide = static_cast<std::uint64_t>(by);
    if (by > 0) {
      multiplier =
          static_cast<std::uint32_t>((((std::uint64_t{1} << shift) - wide) << 32) / wide + 1);
    }
  }
  // n >= 0.
  __host__ __device__ std::int64_t quotient(std::int64_t n) const {
    return ((n | by) >> 31) != 0 ? n / by : short_quotient(static_cast<int>(n));
  }
  // REQUIRES: by < 2^31 and n >= 0.
  __host__ __device__ int short_quotient(int n) const {
    const auto small = static_cast<std::uint32_t>(n);
    const auto high = static_cast<std::uint32_t>((std::uint64_t{small} * multiplier) >> 32);
    return static_cast<int>((high + small) >> shift);
  }
};

template <int K>
struct Places {
  int dims = 0;
  Divisor size[Shape::max_dims];
  std::int64_t step[K][Shape::max_dims] = {};

  Places(const Shape& to, const std::array<Steps, K>& steps) {
    const cpu::Walk<K> walk(to, steps);
    dims = static_cast<int>(walk.dims());
    for (std::size_t d = 0; d < walk.dims(); ++d) {
      size[d] = walk.size(d);
      for (std::size_t k = 0; k < K; ++k) step[k][d] = walk.step(k, d);
    }
  }
  std::int64_t row() const { return size[dims - 1].by; }
  __device__ std::int64_t row_step(int operand) const { return step[operand][dims - 1]; }
  __device__ void find(std::int64_t i, std::int64_t (&at)[K]) const {
    for (int k = 0; k < K; ++k) at[k] = 0;
    for (int d = dims - 1; d >= 0; --d) {
      const std::int64_t rest = d == 0 ? 0 : size[d].quotient(i), place = i - rest * size[d].by;
      for (int k = 0; k < K; ++k) at[k] += place * step[k][d];
      i = rest;
    }
  }
};

}  // namespace peal::cuda
