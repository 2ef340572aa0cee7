// SPDX-License-Identifier: Apache-2.0
// f32 products in panels: the right operand is copied panel by panel, as wide as a tile of the
// small products, and every row of the left one meets a panel while it is in the cache. It beats
// the matrix library where the sums begin with a bias, which is an extra pass there, and where
// rows a page apart meet in few of a cache's sets. Large products take blocks.h's way. Uses the
// calling thread's OpenMP threads. Thread safety: as of the arrays.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/cpu/gemm.h>

#include <cstdint>

namespace peal::cpu {

// out = onto + a b, where row i of onto begins at onto[i row_onto]: a bias has rows 0 apart. onto
// may be null or out. False, and nothing done, where there are too few rows to pay for the copies.
bool multiply_in_panels(float* out, const float* a, const float* b, const float* onto,
                        std::int64_t row_onto, const Product& o);

// The same of few columns, each the dot products of two rows as they are stored. False, and nothing
// done, where they are no such.
bool multiply_by_dots(float* out, const float* a, const float* b, const float* onto,
                      std::int64_t row_onto, const Product& o);

// Whether the library is known to be slow.
bool belongs_in_panels(const Product& o);

// A right operand that many small products share, copied once: so few rows pay as well.
class Panels {
 public:
  // b [k, n], stored as [n, k] where `transposed`.
  Panels(const float* b, std::int64_t k, std::int64_t n, bool transposed);
  // Whether products of `rows` rows, all of them together, pay for the copies.
  static bool worth(std::int64_t rows, std::int64_t k, std::int64_t n);

  // out [m, n] = a [m, k] b, or out += that. Dense rows.
  void multiply(float* out, const float* a, std::int64_t m, bool add) const;

 private:
  std::int64_t k_, n_;
  Tensor panels_;  // [panels, k, columns]
};

}  // namespace peal::cpu
