// SPDX-License-Identifier: Apache-2.0
// Linear algebra of matrices [..., m, n] under the names of PyTorch's torch.linalg: inverses,
// systems of equations, determinants, factorisations, norms. Any leading dimensions are a batch,
// whose matrices are taken one after another.
//
// All is computed on the host in f64, whatever the type, and comes back in the operand's type to
// its device: for matrices on a device that is a copy there and back, for which the host waits. Low
// precision is taken too, which PyTorch refuses. A matrix without an answer (singular, not positive
// definite) is an Error that says which one of the batch it is.
//
// Gradients are made of ops, and can be differentiated in turn. Those of eigenvectors and singular
// vectors need distinct values, as the vectors of equal ones are not determined; the values'
// gradients do not. A gradient of what reads one triangle alone (cholesky, eigh) is symmetric.
// Thread safety: as of the operands.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace peal::linalg {

// Of square matrices.
Tensor inv(const Tensor& a);
Tensor det(
    const Tensor& a);  // its gradient is right where a is singular, a second one is not there
// The determinant's sign, and the logarithm of its size: 0 and -infinite where it is 0. The sign
// has no gradient.
struct Slogdet {
  Tensor sign, logabsdet;
};
Slogdet slogdet(const Tensor& a);
// a ... a, n of them; of the inverse where n < 0, and the identity for 0. Where the matrices lie.
Tensor matrix_power(const Tensor& a, std::int64_t n);

// The product of vectors of three along dim (products.h), where they lie.
Tensor cross(const Tensor& a, const Tensor& b, int dim = -1);

// x with a x = b, or x a = b where not `left`: a [..., n, n], b [..., n, k] (or [..., k, n]), whose
// batches broadcast. b is vectors [..., n] where it has one dimension, or a's without its last.
Tensor solve(const Tensor& a, const Tensor& b, bool left = true);
// The same of matrices b by a's upper or lower triangle; its diagonal is 1 where `unitriangular`.
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left = true,
                        bool unitriangular = false);
// The x of least squares, of these the smallest: of a [..., m, n] and b [..., m, k], or vectors as
// in solve(). residuals [..., k] are the squared distances of a x to b, where m > n and all ranks
// are n, else there are none; rank is i64. x alone has a gradient.
struct Lstsq {
  Tensor solution, residuals, rank, singular_values;
};
Lstsq lstsq(const Tensor& a, const Tensor& b);

// The lower triangle l of l l^T = a, or the upper one u of u^T u = a, by a's same triangle.
Tensor cholesky(const Tensor& a, bool upper = false);
// Q of orthonormal columns times the upper triangle R. With k the smaller of m and n, Q is [..., m,
// k] and R [..., k, n]; `complete` has Q [..., m, m], and no gradient where m > n; of `r` Q is
// undefined.
enum class QrMode { reduced, complete, r };
struct Qr {
  Tensor Q, R;
};
Qr qr(const Tensor& a, QrMode mode = QrMode::reduced);
// U S V^T with S [..., k] from the largest down, U [..., m, k] and Vh = V^T [..., k, n]; in full U
// and V are square, and no gradient flows through what completes them.
struct Svd {
  Tensor U, S, Vh;
};
Svd svd(const Tensor& a, bool full_matrices = true);
Tensor svdvals(const Tensor& a);
// Of symmetric matrices, by their lower ('L') or upper triangle ('U'): eigenvalues [..., n] from
// the smallest up, and eigenvectors as columns.
struct Eigh {
  Tensor eigenvalues, eigenvectors;
};
Eigh eigh(const Tensor& a, char uplo = 'L');
Tensor eigvalsh(const Tensor& a, char uplo = 'L');

// Which singular values count: those above the larger of atol and rtol times the largest one. rtol
// is the larger of m and n times a's type's rounding where neither is, 0 where atol > 0.
struct Tolerance {
  std::optional<double> atol{}, rtol{};
};
// The inverse of what has none: Moore and Penrose's.
Tensor pinv(const Tensor& a, const Tolerance& tolerance = {});
// As i64; not recorded.
Tensor matrix_rank(const Tensor& a, const Tolerance& tolerance = {});

// Of the matrices of two dimensions: the root of the sum of squares, or the sum of the singular
// values; by a number the largest (or, negative, smallest) sum of sizes of a column for 1, of a row
// for infinity, and singular value for 2.
enum class MatrixNorm { fro, nuc };
Tensor matrix_norm(const Tensor& x, MatrixNorm ord = MatrixNorm::fro,
                   const std::vector<int>& dims = {-2, -1}, bool keepdim = false);
Tensor matrix_norm(const Tensor& x, double ord, const std::vector<int>& dims = {-2, -1},
                   bool keepdim = false);

}  // namespace peal::linalg

namespace peal {

// Those that PyTorch has in torch as well, by the names that they have there.
using linalg::det;
using linalg::matrix_power;
using linalg::slogdet;
inline Tensor inverse(const Tensor& a) { return linalg::inv(a); }
// The logarithm of the determinant: -infinite where that is 0, and NaN, with its gradient, where it
// is below.
Tensor logdet(const Tensor& a);

}  // namespace peal
