// SPDX-License-Identifier: Apache-2.0
// Padding of matrices for tensor cores. Their fast products want rows of low precision whose length
// is a multiple of 16 bytes: with others, as of logits over 50257 words, cuBLASLt falls back to
// kernels that are six to eight times slower, and rows that merely lie a whole number apart do not
// help it (both seen on an H100, with cuBLASLt 13.1). So a large product is one of larger matrices,
// with zeros at their edges, where that costs a small part of what it saves. Thread safety: as of
// the tensors.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/autograd/kernels/cuda/column_major.h>
#include <peal/autograd/kernels/cuda/table.h>

#include <cstdint>
#include <optional>

namespace peal::cuda {

constexpr std::int64_t whole_row = 8;  // elements of 2 bytes, in 16 bytes

inline bool is_whole(std::int64_t row) { return row % whole_row == 0; }
inline std::int64_t made_whole(std::int64_t row) {
  return (row + whole_row - 1) / whole_row * whole_row;
}

// The larger product, whose rows are all whole; none where that gains nothing. A dimension grows
// where it is the length of rows that are not whole.
inline std::optional<RowProduct> whole_product(const RowProduct& o, DType operands) {
  // Below, a product gains less than its copies take: of multiplications, and of those that a
  // copied element is used in.
  constexpr std::int64_t least_multiplications = std::int64_t{1} << 28, least_uses = 256;
  if (!is_low_precision(operands) || o.batch != 1) return {};
  const bool m = o.transpose_a && !is_whole(o.m), n = !is_whole(o.n),
             k = (!o.transpose_a || o.transpose_b) && !is_whole(o.k);
  const bool worth = (m || n || k) && (!(m || k) || o.n >= least_uses) &&
                     (!(k || n) || o.m >= least_uses) && (!(m || n) || o.k >= least_uses) &&
                     o.m * o.n >= least_multiplications / o.k;
  if (!worth) return {};
  return dense_product(m ? made_whole(o.m) : o.m, n ? made_whole(o.n) : o.n,
                       k ? made_whole(o.k) : o.k, o.transpose_a, o.transpose_b);
}

// A matrix as it is or, where it is to have more rows or columns, a copy that has them.
class WholeMatrix {
 public:
  WholeMatrix(const Tensor& dense, std::int64_t rows, std::int64_t columns)
      : dense_(dense), whole_(dense), rows_(rows), columns_(columns) {
    if (copied()) whole_ = Tensor::empty({rows, columns}, dense.dtype(), dense.device());
  }
  void* raw() const { return whole_.raw(); }
  // With dense's elements, and zeros beside and below them.
  void* filled() const {
    if (!copied()) return raw();
    write_strided(whole_, dense_, steps(), 0);
    clear(dense_.size(0), columns_ - dense_.size(1), dense_.size(1));
    clear(rows_ - dense_.size(0), columns_, dense_.size(0) * columns_);
    return raw();
  }
  // dense becomes what the copy holds of it.
  void take_back() const {
    if (copied()) read_strided(dense_, whole_, steps(), 0);
  }

 private:
  bool copied() const { return dense_.size(0) != rows_ || dense_.size(1) != columns_; }
  Steps steps() const {
    Steps result{};
    result[0] = columns_, result[1] = 1;
    return result;
  }
  void clear(std::int64_t rows, std::int64_t columns, std::int64_t at) const {
    if (rows == 0 || columns == 0) return;
    const Tensor zeros = Tensor::empty({rows, columns}, whole_.dtype(), whole_.device());
    fill(zeros, 0);
    write_strided(whole_, zeros, steps(), at);
  }

  Tensor dense_, whole_;
  std::int64_t rows_, columns_;
};

}  // namespace peal::cuda
