// SPDX-License-Identifier: Apache-2.0
// Diagonals and triangles of matrices: the last two dimensions, or two that are named. `diagonal`
// counts upwards from the main one, which is 0. The results are copies.
#pragma once

#include <peal/autograd/core/tensor.h>

namespace peal {

// The elements on and below the diagonal of matrices [..., m, n], or on and above it; the others 0.
Tensor tril(const Tensor& x, int diagonal = 0);
Tensor triu(const Tensor& x, int diagonal = 0);
// Where those of an [rows, columns] matrix are: i64 [2, count], in the order of rows.
Tensor tril_indices(std::int64_t rows, std::int64_t columns, int offset = 0,
                    Device device = context().device);
Tensor triu_indices(std::int64_t rows, std::int64_t columns, int offset = 0,
                    Device device = context().device);

// Of dimensions dim1 and dim2, which go; the diagonal becomes the last one.
Tensor diagonal(const Tensor& x, int offset = 0, int dim1 = 0, int dim2 = 1);
// The opposite: the last dimension becomes the diagonal of dim1 and dim2 of the result, zeros
// beside.
Tensor diag_embed(const Tensor& x, int offset = 0, int dim1 = -2, int dim2 = -1);
// The diagonal of a matrix, or the matrix of a diagonal [n].
Tensor diag(const Tensor& x, int diagonal = 0);
// The sum of a matrix's diagonal.
Tensor trace(const Tensor& x);
// Matrices, rows [n] and numbers one below and right of the other, zeros beside; of several types
// in the one that holds all (promotion.h). Of no tensors [1, 0].
Tensor block_diag(const Tensors& tensors);

// In x, which is the result: the diagonal of a matrix, or of equally many of each of more
// dimensions, becomes one value. In a matrix with more rows than columns it begins anew, with one
// row between, where `wrap`. Recorded by the rule of in_place.h.
const Tensor& fill_diagonal_(const Tensor& x, Scalar value, bool wrap = false);
[[nodiscard]] Tensor fill_diagonal_(Tensor&& x, Scalar value, bool wrap = false);

}  // namespace peal
